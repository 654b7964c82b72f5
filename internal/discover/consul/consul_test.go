package consul_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/discover/consul"
)

const secret = "b5c1a7de-0000-4000-8000-token"

func TestNew_refuses(t *testing.T) {
	for _, address := range []string{"", "consul:8500", "ftp://consul", "http://", "http://u:" + secret + "@consul:8500", "http://consul?token=" + secret, "http://[::1"} {
		_, err := consul.New(consul.Options{URL: address})
		if !errors.Is(err, cimeter.ErrInvalid) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: %v: want it refused, and no secret repeated", address, err)
		}
	}
}

// What Consul answers, older versions included, and what becomes of it.
func TestClient_answers(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		text   string
		want   error
	}{
		"done":                     {200, "", nil},
		"unknown check":            {404, `Unknown check ID "service:x". Ensure that the check ID is passed, not the check name.`, cimeter.ErrNotFound},
		"unknown check, 1.8":       {500, `CheckID "service:x" does not have associated TTL`, cimeter.ErrNotFound},
		"no right":                 {403, "Permission denied: token with AccessorID 'x' lacks permission 'service:write'", cimeter.ErrUnauthorized},
		"broken":                   {400, "Invalid service address", cimeter.ErrInvalid},
		"no leader":                {500, "No cluster leader", cimeter.ErrUnavailable},
		"a proxy":                  {502, strings.Repeat("<html>", 10_000), cimeter.ErrUnavailable},
		"somebody else's redirect": {302, "", cimeter.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", "http://127.0.0.1:1/")
				w.WriteHeader(c.status)
				io.WriteString(w, c.text)
			}))
			defer server.Close()
			client := open(t, consul.Options{URL: server.URL, Token: func() (string, error) { return secret, nil }})
			err := client.Pass(t.Context(), "x")
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("%v: want %v", err, c.want)
			}
			if err != nil && (strings.Contains(err.Error(), secret) || len(err.Error()) > 500) {
				t.Errorf("error of %d bytes: %.300v", len(err.Error()), err)
			}
			if err := client.Deregister(t.Context(), "x"); errors.Is(c.want, cimeter.ErrNotFound) && err != nil {
				t.Errorf("deregister what is not known: %v", err)
			}
		})
	}
}

func open(t *testing.T, o consul.Options) *consul.Client {
	t.Helper()
	c, err := consul.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func TestClient_request(t *testing.T) {
	var path, method, token string
	var body map[string]any
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, method, token = r.URL.RequestURI(), r.Method, r.Header.Get("X-Consul-Token")
		body = nil
		json.NewDecoder(r.Body).Decode(&body)
	}))
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	now := "first"
	client := open(t, consul.Options{URL: server.URL + "/", CAFile: ca, Token: func() (string, error) { return now, nil }})
	s := consul.Service{
		ID: "cimeter-ci-7", Name: "cimeter", Address: "10.0.0.7", Port: 9808, Tags: []string{"cimeter"},
		Meta: map[string]string{"machine": "ci-7", "pool": strings.Repeat("ü", 300)}, TTL: 30 * time.Second, DeregisterAfter: time.Minute,
	}
	if err := client.Register(t.Context(), s); err == nil || !strings.Contains(err.Error(), "CA file") {
		t.Fatalf("%v: want the missing CA file named", err)
	}
	if err := os.WriteFile(ca, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := client.Register(t.Context(), s); err == nil || !strings.Contains(err.Error(), "no certificate") {
		t.Fatalf("%v: want it said that there is no certificate", err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(ca, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := client.Register(t.Context(), s); err != nil { // the file is read anew
		t.Fatal(err)
	}
	if method != "PUT" || path != "/v1/agent/service/register?replace-existing-checks=true" || token != "first" {
		t.Errorf("%s %s as %q", method, path, token)
	}
	check, _ := body["Check"].(map[string]any)
	if check["TTL"] != "30s" || check["Status"] != "passing" || check["DeregisterCriticalServiceAfter"] != "1m0s" || body["Port"] != 9808.0 {
		t.Errorf("%v", body)
	}
	if pool := body["Meta"].(map[string]any)["pool"].(string); len(pool) > 512 || !strings.HasSuffix(pool, "ü") {
		t.Errorf("pool of %d bytes: want at most 512 and no broken letter", len(pool))
	}
	now = "second" // a token is replaced without a restart
	if err := client.Pass(t.Context(), "a b/%41"); err != nil || token != "second" || path != "/v1/agent/check/pass/service:a%20b%2F%2541" {
		t.Errorf("%v: %s as %q", err, path, token)
	}
	client = open(t, consul.Options{URL: server.URL})
	if err := client.Pass(t.Context(), "x"); !errors.Is(err, cimeter.ErrUnavailable) || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("%v: want an unknown authority refused", err)
	}
}

func TestClient_tokenCannotBeRead(t *testing.T) {
	broken := errors.New("read secret: /etc/token: permission denied")
	client := open(t, consul.Options{URL: "http://127.0.0.1:1", Token: func() (string, error) { return "", broken }})
	if err := client.Pass(t.Context(), "x"); !errors.Is(err, broken) {
		t.Errorf("%v: want nothing sent without the token", err)
	}
}

// A Consul that takes the connection and says nothing.
func TestClient_hang(t *testing.T) {
	release := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer server.Close()
	defer close(release)
	client := open(t, consul.Options{URL: server.URL})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := client.Pass(ctx, "x"); !errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("%v: want it given up", err)
	}
}

func TestClient_Outward(t *testing.T) {
	for address, want := range map[string]string{"http://127.0.0.1:8500": "", "http://[::1]:8500": "", "http://localhost": ""} {
		if got, err := open(t, consul.Options{URL: address}).Outward(t.Context()); err != nil && !errors.Is(err, cimeter.ErrUnavailable) || got != want {
			t.Errorf("%s: %q, %v: want %q", address, got, err, want)
		}
	}
}

func FuzzClient_answer(f *testing.F) {
	f.Add(500, "CheckID \"x\" does not have associated TTL")
	f.Add(404, "\xff\x00")
	f.Fuzz(func(t *testing.T, status int, text string) {
		if status < 200 || status > 599 {
			return
		}
		server := transport(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(text)), Header: http.Header{}}, nil
		})
		err := consul.Judge(server, t.Context())
		if (status/100 == 2) != (err == nil) {
			t.Errorf("%d: %v", status, err)
		}
		if err != nil && len(err.Error()) > 1500 {
			t.Errorf("error of %d bytes", len(err.Error()))
		}
	})
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
