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

// Browser is a headless Chromium of a test.
type Browser struct{ ctx context.Context }

// Open starts a browser that ends with the test. Without a Chromium the test is
// skipped, and fails where CI=true is set.
func Open(t testing.TB) *Browser {
	t.Helper()
	path := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		const want = "no Chromium: want one to look at the pages (apt-get install chromium)"
		if os.Getenv("CI") == "true" {
			t.Fatal(want)
		}
		t.Skip(want)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.DisableGPU, chromedp.ExecPath(path), chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("hide-scrollbars", true))
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("start %s: %v", path, err)
	}
	return &Browser{ctx}
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

	mu       sync.Mutex
	problems []string // errors, warnings, violations of the policy, dialogs
	requests []string
	bytes    float64 // encoded, of finished requests
}

// Tab opens a tab that closes with the test.
func (b *Browser) Tab(t testing.TB, l Look) *Tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx)
	t.Cleanup(cancel)
	tab := &Tab{t: t, ctx: ctx}
	if err := chromedp.Listen(ctx, tab.hear); err != nil {
		t.Fatal(err)
	}
	scheme := "light"
	if l.Dark {
		scheme = "dark"
	}
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}
	for name, value := range l.Features {
		features = append(features, &emulation.MediaFeature{Name: name, Value: value})
	}
	tab.Do(
		func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
			_, logs := cdp.Call(ctx, t, log.Enable, cdp.Empty{})
			_, nets := cdp.Call(ctx, t, network.Enable, network.EnableParams{})
			_, media := cdp.Call(ctx, t, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
			return chromedp.Void{}, errors.Join(logs, nets, media)
		},
		chromedp.EmulateViewport(l.Width, l.Height),
	)
	return tab
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

// Shot keeps a picture of the whole page: in CIMETER_SHOTS, else among the
// test's artifacts.
func (tab *Tab) Shot(t testing.TB, name string) {
	t.Helper()
	png, err := chromedp.Run(tab.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		t.Fatal(err)
	}
	dir := os.Getenv("CIMETER_SHOTS")
	if dir == "" {
		dir = t.ArtifactDir()
	}
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
