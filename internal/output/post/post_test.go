package post_test

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/output/post"
	"github.com/cimeter/cimeter/internal/refusal"
)

const secret = "t0p-s3cret"

func target(t *testing.T, o post.Options) *post.Target {
	t.Helper()
	to, err := post.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(to.Close)
	return to
}

func TestNew_refuses(t *testing.T) {
	for name, o := range map[string]post.Options{
		"no address":            {},
		"other scheme":          {URL: "ftp://h/"},
		"no host":               {URL: "http:///x"},
		"password":              {URL: "http://u:" + secret + "@h/"},
		"control character":     {URL: "http://h/" + secret + "\n"},
		"line break in header":  {URL: "http://h/", Headers: map[string]string{"X-A": secret + "\r\nX-B: c"}},
		"space in header":       {URL: "http://h/", Headers: map[string]string{"X A": secret}},
		"header of the address": {URL: "http://h/", Headers: map[string]string{"host": secret}},
	} {
		if _, err := post.New(o); !errors.Is(err, cimeter.ErrInvalid) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What a request carries: the address with the path behind it and its query,
// headers of the settings and of the output, and the credential of the moment.
func TestTarget_Post(t *testing.T) {
	var got *http.Request
	var body []byte
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("X-Said", "yes")
		io.WriteString(w, "answer")
	}))
	defer s.Close()
	token := ""
	o := post.Options{
		URL: s.URL + "/base?key=1", Headers: map[string]string{"X-Scope-OrgID": "team", "Content-Type": "theirs"},
		Secret: func() (string, error) { return token, nil },
	}
	to := target(t, o)
	for _, c := range []struct{ token, user, want string }{{"", "", ""}, {secret, "", "Bearer " + secret}, {"p", "u", "Basic dTpw"}} {
		token = c.token
		if c.user != "" {
			o.User = c.user
			to = target(t, o)
		}
		header, answer, err := to.Post(t.Context(), "v1/x", http.Header{"Content-Type": {"ours"}}, []byte("body"))
		if err != nil || string(answer) != "answer" || header.Get("X-Said") != "yes" {
			t.Fatalf("%s %v %v", answer, header, err)
		}
		if got.URL.String() != "/base/v1/x?key=1" || string(body) != "body" || got.Method != http.MethodPost ||
			got.Header.Get("X-Scope-Orgid") != "team" || got.Header.Get("Content-Type") != "ours" || got.Header.Get("Authorization") != c.want {
			t.Errorf("%s %s %q %v", got.Method, got.URL, body, got.Header)
		}
	}
}

// A credential goes to no other host, and into no error; nor does the query.
func TestTarget_Post_keepsSecrets(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("request to another host with %v", r.Header)
	}))
	defer other.Close()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	secrets := func() (string, error) { return secret, nil }
	to := target(t, post.Options{URL: s.URL + "?key=" + secret, Secret: secrets})
	_, _, err := to.Post(t.Context(), "", nil, nil)
	var r *refusal.Error
	if !errors.As(err, &r) || r.Status != 307 || strings.Contains(err.Error(), secret) {
		t.Errorf("%v", err)
	}
	s.Close()
	if _, _, err = to.Post(t.Context(), "", nil, nil); !errors.Is(err, cimeter.ErrUnavailable) || strings.Contains(err.Error(), secret) || strings.Contains(to.Address(), secret) {
		t.Errorf("%v, %s", err, to.Address())
	}
	unreadable := target(t, post.Options{URL: s.URL, Secret: func() (string, error) { return "", errors.New("no such file") }})
	if _, _, err = unreadable.Post(t.Context(), "", nil, nil); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("%v", err)
	}
}

// The CA file is read anew after a failure: a certificate that is replaced needs
// no restart.
func TestTarget_Post_trust(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	to := target(t, post.Options{URL: s.URL, CAFile: file})
	if _, _, err := to.Post(t.Context(), "", nil, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
	write := func(b []byte) {
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write([]byte("no PEM"))
	if _, _, err := to.Post(t.Context(), "", nil, nil); err == nil || !strings.Contains(err.Error(), "want PEM") {
		t.Errorf("%v", err)
	}
	write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	if _, _, err := to.Post(t.Context(), "", nil, nil); err != nil {
		t.Errorf("%v", err)
	}
	if _, _, err := target(t, post.Options{URL: s.URL}).Post(t.Context(), "", nil, nil); !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("an unknown authority: %v", err)
	}
}

// Receivers that hang, refuse, answer garbage, break off or never end cost an
// error that wraps ErrUnavailable, by the deadline, and bounded memory.
func TestTarget_Post_badReceivers(t *testing.T) {
	serve := func(h http.HandlerFunc) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Write([]byte("\x00\x1b[31m garbage\r\n\r\n"))
			c.Close()
		}
	}()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	for name, url := range map[string]string{
		"refusing": "http://" + closed.Addr().String(),
		"garbage":  "http://" + l.Addr().String(),
		"hanging": serve(func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // else the server does not see that the client goes
			<-r.Context().Done()
		}),
		"cut off": serve(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, "x")
		}),
		"endless": serve(func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		}),
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if _, _, err := target(t, post.Options{URL: url}).Post(ctx, "", nil, []byte("x")); !errors.Is(err, cimeter.ErrUnavailable) || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%q", err)
			}
		})
	}
}
