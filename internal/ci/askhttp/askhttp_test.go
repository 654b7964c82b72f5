package askhttp_test

import (
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/ask"
	"github.com/cimeter/cimeter/internal/ci/askhttp"
)

func server(t *testing.T, o askhttp.Options) *askhttp.Server {
	t.Helper()
	s, err := askhttp.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The token is read for each request; another token is not shown what was kept for
// the one before.
func TestTokens(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get("Authorization")+" "+r.Header.Get("If-None-Match"))
		w.Header().Set("ETag", `"1"`)
		if r.Header.Get("If-None-Match") == `"1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		io.WriteString(w, "of "+r.Header.Get("Authorization"))
	}))
	defer s.Close()
	token := "a\n"
	c := server(t, askhttp.Options{URL: s.URL, Token: func() (string, error) { return token, nil }})
	for _, step := range []struct {
		token string
		q     ask.Request
		want  string
		body  string
	}{
		{"a\n", ask.Request{Path: "/x"}, "Bearer a ", "of Bearer a"},
		{"a\n", ask.Request{Path: "/x"}, `Bearer a "1"`, "of Bearer a"},
		{"b", ask.Request{Path: "/x"}, "Bearer b ", "of Bearer b"},
		{"b", ask.Request{Path: "/x", Fresh: true}, "Bearer b ", "of Bearer b"},
		{"b", ask.Request{Path: "/y", Sign: "token"}, "token b ", "of token b"},
		{"", ask.Request{Path: "/x"}, " ", "of "},
	} {
		token = step.token
		a, err := c.Do(t.Context(), step.q)
		if err != nil || a.Status != 200 || string(a.Body) != step.body || got[len(got)-1] != step.want {
			t.Errorf("%+v: %d %q, %v; asked %q", step, a.Status, a.Body, err, got[len(got)-1])
		}
	}
	broken := server(t, askhttp.Options{URL: s.URL, Token: func() (string, error) { return "", errors.New("no file") }})
	if _, err := broken.Do(t.Context(), ask.Request{Path: "/x"}); err == nil || !strings.Contains(err.Error(), "no file") {
		t.Errorf("without its token: %v", err)
	}
}

func TestBounds(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/big":
			for range 33 {
				w.Write(make([]byte, 1<<20))
			}
		case "/away":
			http.Redirect(w, r, "/stolen", http.StatusFound)
		default:
			t.Errorf("asked for %s", r.URL.Path)
		}
	}))
	defer s.Close()
	c := server(t, askhttp.Options{URL: s.URL})
	if _, err := c.Do(t.Context(), ask.Request{Path: "/big"}); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("33 MiB: %v", err)
	}
	if a, err := c.Do(t.Context(), ask.Request{Path: "/away"}); err != nil || a.Status != http.StatusFound {
		t.Errorf("redirect: %d, %v: want it told and not followed", a.Status, err)
	}
	for _, url := range []string{"", "host", "ftp://host", "http://u:p@host", "http://host?x=1", "http://host#x", "http://"} {
		if _, err := askhttp.New(askhttp.Options{URL: url}); !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("address %q: %v", url, err)
		}
	}
	gone := server(t, askhttp.Options{URL: "http://127.0.0.1:1"})
	if _, err := gone.Do(t.Context(), ask.Request{Path: "/x", Query: map[string][]string{"secret": {"geheim"}}}); err == nil || strings.Contains(err.Error(), "geheim") {
		t.Errorf("nobody listens: %v", err)
	}
}

// Certificates are those of the file, which is read anew after a failure.
func TestAuthorities(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{}") }))
	defer s.Close()
	s.Config.ErrorLog = nil
	file := filepath.Join(t.TempDir(), "ca.pem")
	c := server(t, askhttp.Options{URL: s.URL, CAFile: file})
	if _, err := c.Do(t.Context(), ask.Request{Path: "/"}); err == nil {
		t.Error("asked without the file")
	}
	for content, ok := range map[string]bool{"no certificate": false, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})): true} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c := server(t, askhttp.Options{URL: s.URL, CAFile: file})
		if _, err := c.Do(t.Context(), ask.Request{Path: "/"}); (err == nil) != ok {
			t.Errorf("%.20q: %v", content, err)
		}
	}
}
