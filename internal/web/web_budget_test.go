package web_test

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/web"
	"github.com/cimeter/cimeter/internal/webtest"
)

const kib = 1 << 10

// zipped gets a page as browsers do and returns its size on the wire.
func zipped(t *testing.T, h http.Handler, target string) (size int, body string, header http.Header) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.Header.Set("Accept-Encoding", "br, gzip")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	size = w.Body.Len()
	if w.Header().Get("Content-Encoding") != "gzip" {
		t.Fatalf("%s: not compressed", target)
	}
	z, err := gzip.NewReader(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return size, string(b), w.Header()
}

var (
	assetLink = regexp.MustCompile(`(?:href|src)="(/static/[^"]+)"`)
	traceLink = regexp.MustCompile(`data-trace="([^"]+)"`)
	element   = regexp.MustCompile(`<[a-z]`)
)

// A page cold is at most six requests and 80 KiB; one without a chart 40 KiB
// and no uPlot. What never changes is kept for a year.
func TestBudget(t *testing.T) {
	h := pages(t, fleet())
	for _, p := range everyPage() {
		t.Run(p.name, func(t *testing.T) {
			size, body, _ := zipped(t, h, p.path)
			if size > 25*kib {
				t.Errorf("page of %d bytes: want at most 25 KiB", size)
			}
			if n := len(element.FindAllString(body, -1)); n > 1500 {
				t.Errorf("%d elements: want at most 1,500", n)
			}
			sum, requests := size, 1
			for _, m := range assetLink.FindAllStringSubmatch(body, -1) {
				n, _, header := zipped(t, h, m[1])
				if !strings.Contains(header.Get("Cache-Control"), "immutable") {
					t.Errorf("%s: Cache-Control %q", m[1], header.Get("Cache-Control"))
				}
				limit := 12 * kib
				switch {
				case strings.Contains(m[1], "uplot"):
					limit = 23 * kib
				case strings.HasSuffix(m[1], ".css"):
					limit = 9 * kib
				}
				if n > limit {
					t.Errorf("%s: %d bytes: want at most %d", m[1], n, limit)
				}
				sum, requests = sum+n, requests+1
			}
			most := 40 * kib
			if m := traceLink.FindStringSubmatch(body); m != nil {
				n, _, _ := zipped(t, h, strings.ReplaceAll(m[1], "&amp;", "&"))
				if n > 10*kib {
					t.Errorf("trace of %d bytes: want at most 10 KiB", n)
				}
				sum, requests, most = sum+n, requests+1, 80*kib
			} else if strings.Contains(body, "data-points") && strings.Contains(p.path, "/machine?") || strings.Contains(p.path, "/runner?") {
				most = 80 * kib
			} else if assets := strings.Join(assetLink.FindAllString(body, -1), " "); strings.Contains(assets, "uplot") {
				t.Error("loads uPlot without a chart")
			}
			if sum > most || requests > 6 {
				t.Errorf("%d bytes in %d requests: want at most %d in 6", sum, requests, most)
			}
		})
	}
}

// The vendored files are the published ones: uplot@1.6.32 and axe-core@4.14.1
// of the npm registry.
func TestVendored(t *testing.T) {
	for file, want := range map[string]string{
		"static/vendor/uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
		"static/vendor/uPlot.min.css":     "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
		"testdata/axe/axe.min.js":         "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c",
	} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s: sha256 %x: want %s", file, sum, want)
		}
	}
	for _, license := range []string{"static/vendor/uPlot.LICENSE", "testdata/axe/LICENSE"} {
		if b, err := os.ReadFile(license); err != nil || len(b) < 500 {
			t.Errorf("%s: %v", license, err)
		}
	}
}

func TestHeaders(t *testing.T) {
	h := pages(t, fleet())
	for _, target := range []string{"/", "/builds", "/builds/none", "/nowhere", "/static/none.js"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		csp := w.Header().Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'self'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("%s: policy %q: want %s", target, csp, want)
			}
		}
		if strings.Contains(csp, "unsafe") || strings.Contains(csp, "*") || w.Header().Get("X-Content-Type-Options") != "nosniff" || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: headers %v", target, w.Header())
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, "/builds", nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: got %d: want 405", method, w.Code)
		}
	}
}

// Whatever the names are, a page is the same elements: nothing breaks out.
func TestHostileNames(t *testing.T) {
	tag := regexp.MustCompile(`</?[a-zA-Z!][^\s>]*`)
	shape := func(s string) map[string]string {
		m := &webtest.Memory{Records: []*cimeter.Record{webtest.Named(webtest.Example(), s)}}
		h := pages(t, m)
		shapes := map[string]string{}
		for _, path := range []string{"/builds/" + m.Records[0].Key, "/builds?t=all&project=" + url.QueryEscape(s), "/job?t=all&project=" + url.QueryEscape(s) + "&name=" + url.QueryEscape(s)} {
			_, body := get(t, h, path)
			kind, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "?")
			kind, _, _ = strings.Cut(kind, "/")
			if strings.Contains(path, "/builds/") {
				kind = "build"
			}
			shapes[kind] = strings.Join(tag.FindAllString(body, -1), "")
		}
		return shapes
	}
	want := shape("https://plain.example/x y")
	for _, s := range webtest.Hostile {
		if len(s) > 4000 {
			continue // no key is so long: TestHostileNamesInBrowser has it
		}
		for page, got := range shape(s) {
			// A link to the CI server is there only for an address of the web.
			if page == "build" {
				got, want := strings.ReplaceAll(got, "<a", "<span"), strings.ReplaceAll(want[page], "<a", "<span")
				got, want = strings.ReplaceAll(got, "</a", "</span"), strings.ReplaceAll(want, "</a", "</span")
				if n, m := strings.Count(got, "<"), strings.Count(want, "<"); n > m+20 || strings.Count(got, "<script") != strings.Count(want, "<script") || strings.Contains(got, "<img") || strings.Contains(got, "<iframe") || strings.Contains(got, "<base") {
					t.Errorf("%q: %s has %d tags: want about %d\n%s", s, page, n, m, got)
				}
				continue
			}
			for _, bad := range []string{"<img", "<iframe", "<base", "<style", "<!--"} {
				if strings.Contains(got, bad) {
					t.Errorf("%q: %s holds %s", s, page, bad)
				}
			}
			if strings.Count(got, "<script") != strings.Count(want[page], "<script") {
				t.Errorf("%q: %s has other scripts", s, page)
			}
		}
	}
}

// No template may hand strings through unescaped.
func TestNoTrustedStrings(t *testing.T) {
	found, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		b, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"template.HTML", "template.JS", "template.CSS", "template.URL", "template.Srcset", "text/template"} {
			if strings.Contains(string(b), bad) {
				t.Errorf("%s uses %s", f.Name(), bad)
			}
		}
	}
	scripts, err := os.ReadDir("static")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range scripts {
		if !strings.HasSuffix(f.Name(), ".js") {
			continue
		}
		b, err := os.ReadFile("static/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function", "DOMParser", "setAttribute(\"style", "createContextualFragment"} {
			if strings.Contains(string(b), bad) {
				t.Errorf("%s uses %s", f.Name(), bad)
			}
		}
	}
}

func TestLive(t *testing.T) {
	p, err := web.New(web.Options{Source: fleet(), Tick: 1})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(p)
	defer s.Close()
	r, err := http.Get(s.URL + "/live")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if got := r.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("got %q", got)
	}
	b := make([]byte, 64)
	if n, err := io.ReadAtLeast(r.Body, b, 20); err != nil || !strings.HasPrefix(string(b[:n]), "retry: 3000\n\ndata: 1\n\n"[:20]) {
		t.Errorf("got %q, %v", b[:n], err)
	}
	p.Close()
	p.Close()
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		t.Errorf("after Close: %v: want the end of the stream", err)
	}
}
