package webtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// Browser is a headless Chromium of tests. Many may use it at once, each with
// tabs of its own.
type Browser struct {
	ctx  context.Context
	dir  string
	stop []func()
}

// errNone says that there is no Chromium.
var errNone = errors.New("no Chromium: want one to look at the pages (apt-get install chromium-headless-shell)")

// Launch starts a browser; Close ends it.
func Launch() (*Browser, error) {
	path := "" // the shell first: it is a third cheaper, having no window around its pages
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		return nil, errNone
	}
	dir, err := os.MkdirTemp("", "cimeter-chromium-")
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU, chromedp.ExecPath(path), chromedp.UserDataDir(dir),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("hide-scrollbars", true))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	b := &Browser{ctx: ctx, dir: dir, stop: []func(){cancel, end}}
	if err := chromedp.Do(ctx); err != nil {
		b.Close()
		return nil, fmt.Errorf("start %s: %w", path, err)
	}
	return b, nil
}

// Close ends the browser and removes its files.
func (b *Browser) Close() {
	for _, f := range b.stop {
		f()
	}
	os.RemoveAll(b.dir)
}

// Need returns the browser that launch starts or has started. Without a
// Chromium the test is skipped, and fails where CI=true is set.
func Need(t testing.TB, launch func() (*Browser, error)) *Browser {
	t.Helper()
	b, err := launch()
	if errors.Is(err, errNone) && os.Getenv("CI") != "true" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Look is how a tab sees pages.
type Look struct {
	Width, Height int64
	Dark          bool
	Features      map[string]string // further media features
}

func (l Look) String() string {
	theme := "light"
	if l.Dark {
		theme = "dark"
	}
	return fmt.Sprintf("%d-%s", l.Width, theme)
}

// Looks are those that every page is tested with.
var Looks = []Look{{Width: 1440, Height: 900}, {Width: 1440, Height: 900, Dark: true}, {Width: 320, Height: 640}, {Width: 320, Height: 640, Dark: true}}

// Tab is a page of the browser. It records what a page must not do.
type Tab struct {
	t   testing.TB
	ctx context.Context

	width, height int64 // of its viewport

	mu       sync.Mutex
	problems []string // errors, warnings, violations of the policy, dialogs
	requests []string
	bytes    float64 // encoded, of finished requests
}

// Tab opens a tab that closes with the test.
func (b *Browser) Tab(t testing.TB, l Look) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext()) // cookies of its own
	t.Cleanup(cancel)
	tab := &Tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, tab.hear); err != nil {
		t.Fatal(err)
	}
	tab.Do(
		func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
			_, logs := cdp.Call(ctx, t, log.Enable, cdp.Empty{})
			_, nets := cdp.Call(ctx, t, network.Enable, network.EnableParams{})
			_, focus := cdp.Call(ctx, t, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
			return chromedp.Void{}, errors.Join(logs, nets, focus)
		},
	)
	tab.Look(l)
	return tab
}

// Look changes the size, the theme and the media features of the tab.
func (tab *Tab) Look(l Look) {
	tab.t.Helper()
	scheme := "light"
	if l.Dark {
		scheme = "dark"
	}
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	for name, value := range l.Features {
		features = append(features, &emulation.MediaFeature{Name: name, Value: value})
	}
	if tab.width != l.Width || tab.height != l.Height {
		tab.Do(chromedp.EmulateViewport(l.Width, l.Height))
		tab.width, tab.height = l.Width, l.Height
	}
	tab.Do(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
		return chromedp.Void{}, err
	})
}

func (tab *Tab) hear(ev any) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	switch ev := ev.(type) {
	case *page.EventJavascriptDialogOpening:
		tab.problems = append(tab.problems, "dialog: "+ev.Message)
	case *runtime.EventExceptionThrown:
		tab.problems = append(tab.problems, fmt.Sprintf("exception: %+v", ev.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		for _, a := range ev.Args {
			tab.problems = append(tab.problems, fmt.Sprintf("console.%s: %s%s", ev.Type, a.Value, a.Description))
		}
	case *log.EventEntryAdded:
		tab.problems = append(tab.problems, fmt.Sprintf("%s: %s %s", ev.Entry.Source, ev.Entry.Text, ev.Entry.URL))
	case *network.EventRequestWillBeSent:
		tab.requests = append(tab.requests, ev.Request.URL)
	case *network.EventLoadingFinished:
		tab.bytes += ev.EncodedDataLength
	}
}

// Do runs actions; an error ends the test.
func (tab *Tab) Do(steps ...chromedp.Action[chromedp.Void]) {
	tab.t.Helper()
	if err := chromedp.Do(tab.ctx, steps...); err != nil {
		tab.t.Fatal(err)
	}
}

// Go opens a page and waits until it has settled: loaded, and its charts drawn.
func (tab *Tab) Go(url string) {
	tab.t.Helper()
	tab.mu.Lock()
	tab.problems, tab.requests, tab.bytes = nil, nil, 0
	tab.mu.Unlock()
	tab.Do(chromedp.Navigate(url))
	Eval[bool](tab, `new Promise(done => { const look = () => document.readyState === "complete" && !document.querySelector("[data-trace]:not([data-drawn])") ? requestAnimationFrame(() => requestAnimationFrame(() => done(true))) : setTimeout(look, 10); look(); })`)
}

// Eval evaluates JavaScript, and waits for it when it is a promise.
func Eval[T any](tab *Tab, js string) T {
	tab.t.Helper()
	v, err := chromedp.Run(tab.ctx, chromedp.Evaluate[T](js, chromedp.EvalAwaitPromise))
	if err != nil {
		tab.t.Fatalf("%.200s: %v", js, err)
	}
	return v
}

// Problems are what the page did that it must not, since it was opened.
func (tab *Tab) Problems() []string {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return append([]string(nil), tab.problems...)
}

// Loaded is how many requests the page made and how many bytes came over the wire.
func (tab *Tab) Loaded() (requests []string, bytes float64) {
	tab.mu.Lock()
	defer tab.mu.Unlock()
	return append([]string(nil), tab.requests...), tab.bytes
}

// Shot keeps a picture of the whole page in the folder CIMETER_SHOTS, where that
// is set: nothing but a person's eyes can tell what it shows.
func (tab *Tab) Shot(t testing.TB, name string) {
	t.Helper()
	dir := os.Getenv("CIMETER_SHOTS")
	if dir == "" {
		return
	}
	yes := true
	var png []byte
	tab.Do(func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		r, err := cdp.Call(ctx, target, page.CaptureScreenshot, page.CaptureScreenshotParams{CaptureBeyondViewport: &yes, FromSurface: &yes, OptimizeForSpeed: &yes})
		if err == nil {
			png = r.Data
		}
		return chromedp.Void{}, err
	})
	if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
		t.Fatal(err)
	}
}

// WithoutScript turns script off in the tab.
func (tab *Tab) WithoutScript() {
	tab.t.Helper()
	tab.Do(func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, t, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
		return chromedp.Void{}, err
	})
}

// GoPlain opens a page and waits until it is loaded.
func (tab *Tab) GoPlain(url string) {
	tab.t.Helper()
	tab.Do(chromedp.Navigate(url))
}
