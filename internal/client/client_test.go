package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/client"
)

const planted = "planted-secret"

func dial(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// server answers every request with h and tells the last request it got.
func server(t *testing.T, h http.HandlerFunc) (url string, last func() *http.Request) {
	t.Helper()
	var seen *http.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r
		h(w, r)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() *http.Request { return seen }
}

func record(key string) *cimeter.Record {
	return &cimeter.Record{Schema: 1, Build: cimeter.Build{Key: key, Project: "group/app"}, Complete: true}
}

func TestClient_Builds(t *testing.T) {
	url, last := server(t, func(w http.ResponseWriter, r *http.Request) {
		json.NewEncoder(w).Encode(map[string]any{"builds": []*cimeter.Record{record("a"), record("b")}, "next": "c2"})
	})
	found, next, err := dial(t, client.Options{URL: url + "/cimeter/"}).Builds(t.Context(), client.Filter{
		Project: "group/app", CI: "gitlab", Name: "n", Stage: "s", Runner: "r", Machine: "m m", Result: "failed", Limit: 2, Cursor: "c0"})
	if err != nil || len(found) != 2 || found[1].Key != "b" || next != "c2" {
		t.Errorf("got %v, %q, %v", found, next, err)
	}
	if got, want := last().URL.String(), "/cimeter/api/v1/builds?ci=gitlab&cursor=c0&limit=2&machine=m+m&name=n&project=group%2Fapp&result=failed&runner=r&stage=s"; got != want {
		t.Errorf("asked %s: want %s", got, want)
	}
	if last().Header.Get("Authorization") != "" {
		t.Error("authorization without any")
	}
}

func TestClient_Build(t *testing.T) {
	url, last := server(t, func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(record("k")) })
	for _, key := range []string{"gitlab/gitlab.example.com/4242", cimeter.BuildKey("run", "ci 7", "a;b,c?d#e/f"), "odd?key#x"} {
		r, err := dial(t, client.Options{URL: url}).Build(t.Context(), key)
		if err != nil || r.Key != "k" {
			t.Fatalf("got %v, %v", r, err)
		}
		if got := last().URL.EscapedPath(); got != "/api/v1/builds/"+strings.NewReplacer("?", "%3F", "#", "%23").Replace(key) {
			t.Errorf("asked %s for %s", got, key)
		}
	}
	if _, err := dial(t, client.Options{URL: url}).Build(t.Context(), "bad%zz"); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("got %v: want invalid", err)
	}
}

func TestClient_Authorization(t *testing.T) {
	url, last := server(t, func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(record("k")) })
	host := strings.TrimPrefix(url, "http://")
	for _, c := range []struct {
		name string
		o    client.Options
		want string
	}{
		{"token", client.Options{URL: url, Token: planted}, "Bearer " + planted},
		{"password", client.Options{URL: url, User: "me", Password: "pw"}, "Basic bWU6cHc="},
		{"in the address", client.Options{URL: "http://me:pw@" + host}, "Basic bWU6cHc="},
	} {
		t.Run(c.name, func(t *testing.T) {
			cl := dial(t, c.o)
			if _, err := cl.Build(t.Context(), "k"); err != nil {
				t.Fatal(err)
			}
			if got := last().Header.Get("Authorization"); got != c.want {
				t.Errorf("got %q: want %q", got, c.want)
			}
			if cl.Address() != url {
				t.Errorf("address %s: want %s", cl.Address(), url)
			}
		})
	}
}

func TestNew_Failure(t *testing.T) {
	for _, o := range []client.Options{
		{URL: "ci-7:9808"}, {URL: "ftp://x:" + planted + "@h"}, {URL: "http://"}, {URL: "http://x:" + planted + "@h\x7f"}, {URL: "http://h?a=b"},
		{URL: "http://x:" + planted + "@h:port"}, {URL: "http://x:" + planted + "@h", Token: planted},
	} {
		c, err := client.New(o)
		if !errors.Is(err, cimeter.ErrInvalid) || c != nil {
			t.Errorf("%q: got %v, %v: want invalid", o.URL, c, err)
		} else if strings.Contains(err.Error(), planted) {
			t.Errorf("the password is in %q", err)
		}
	}
}

func TestClient_Errors(t *testing.T) {
	for status, want := range map[int]error{
		400: cimeter.ErrInvalid, 401: cimeter.ErrUnauthorized, 403: cimeter.ErrUnauthorized, 404: cimeter.ErrNotFound, 409: cimeter.ErrConflict,
		429: cimeter.ErrUnavailable, 501: cimeter.ErrUnsupported, 502: cimeter.ErrUnavailable, 503: cimeter.ErrUnavailable, 504: cimeter.ErrUnavailable,
		500: nil, 302: nil, 204: nil, 406: nil,
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/problem+json")
				w.Header().Set("Location", "http://evil.example/")
				w.WriteHeader(status)
				io.WriteString(w, `{"detail":"colour: not known\u001b[2J\n`+strings.Repeat("x", 1000)+`"}`)
			})
			c := dial(t, client.Options{URL: strings.Replace(url, "http://", "http://me:"+planted+"@", 1)})
			_, err := c.Build(t.Context(), "k")
			if err == nil || want != nil && !errors.Is(err, want) {
				t.Fatalf("got %v: want %v", err, want)
			}
			for _, code := range []error{cimeter.ErrNotFound, cimeter.ErrInvalid, cimeter.ErrConflict, cimeter.ErrUnauthorized, cimeter.ErrUnavailable, cimeter.ErrUnsupported} {
				if code != want && errors.Is(err, code) {
					t.Errorf("%v is also %v", err, code)
				}
			}
			text := err.Error()
			if strings.Contains(text, planted) || strings.ContainsAny(text, "\x1b\n") || len(text) > 600 || !strings.Contains(text, fmt.Sprint(status)) {
				t.Errorf("got %q", text)
			}
			if status != 204 && !strings.Contains(text, "colour: not known") {
				t.Errorf("%q leaves out the server's words", text)
			}
		})
	}
	answers := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, body) }
	}
	for name, body := range map[string]string{"html": "<html>", "cut off": `{"builds":[{"key":"a"`, "null among them": `{"builds":[null]}`, "nothing": ""} {
		t.Run(name, func(t *testing.T) {
			url, _ := server(t, answers(body))
			if found, _, err := dial(t, client.Options{URL: url}).Builds(t.Context(), client.Filter{}); err == nil || found != nil {
				t.Errorf("got %v, %v: want an error only", found, err)
			}
		})
	}
	t.Run("an endless answer", func(t *testing.T) {
		url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		})
		if _, err := dial(t, client.Options{URL: url}).Build(t.Context(), "k"); !errors.Is(err, cimeter.ErrInvalid) || !strings.Contains(err.Error(), "larger") {
			t.Errorf("got %v: want too large", err)
		}
	})
	t.Run("nobody listens", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		_, err = dial(t, client.Options{URL: "http://me:" + planted + "@" + l.Addr().String()}).Build(t.Context(), "k")
		if !errors.Is(err, cimeter.ErrUnavailable) || strings.Contains(err.Error(), planted) || strings.Count(err.Error(), "/api/v1") > 0 {
			t.Errorf("got %v: want unavailable without the password", err)
		}
	})
	t.Run("given up", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		url, _ := server(t, func(w http.ResponseWriter, r *http.Request) {
			cancel()
			<-r.Context().Done()
		})
		if _, err := dial(t, client.Options{URL: url}).Build(ctx, "k"); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v: want canceled", err)
		}
	})
}

// A token goes to the server that was asked and nowhere else.
func TestClient_Redirect(t *testing.T) {
	other, last := server(t, func(w http.ResponseWriter, r *http.Request) { json.NewEncoder(w).Encode(record("k")) })
	url, _ := server(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other, http.StatusTemporaryRedirect) })
	if _, err := dial(t, client.Options{URL: url, Token: planted}).Build(t.Context(), "k"); err == nil || last() != nil {
		t.Errorf("got %v, asked the other: %t", err, last() != nil)
	}
}
