package httpapi_test

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/wire"
)

const (
	readToken   = "cmt_reads-0123456789"
	pushToken   = "cmt_pushes-0123456789"
	cancelToken = "cmt_cancels-0123456789"
)

func tokens(t testing.TB) []httpapi.Token {
	t.Helper()
	text := fmt.Sprintf("# who may what\n\nread grafana %x\n  push\tagents %X  \ncancel me %x\n", sha256.Sum256([]byte(readToken)), sha256.Sum256([]byte(pushToken)), sha256.Sum256([]byte(cancelToken)))
	ts, err := httpapi.ParseTokens(text)
	if err != nil || len(ts) != 3 || ts[2].Role != httpapi.Cancel || ts[0].Role != httpapi.Read || ts[1].Name != "agents" {
		t.Fatalf("%+v, %v", ts, err)
	}
	return ts
}

// askFor is a request that a route would answer well if it were let in.
func askFor(t testing.TB, rt httpapi.Route, authorization string) *http.Request {
	t.Helper()
	method, path, body := http.MethodGet, rt.Path, ""
	switch {
	case rt.Path == wire.RecordsPath:
		method, body = http.MethodPost, string(batch(t, build(0)))
	case rt.Path == wire.HeartbeatPath:
		method, body = http.MethodPost, `{"agent":"a","machine":"m","interval_seconds":5}`
	case rt.Path == "/api/v1/work/cancel":
		method, body = http.MethodPost, `{"key":"gitlab/gitlab.example.com/0"}`
	case rt.Path == httpapi.HooksPath:
		method, path = http.MethodPost, path+"gitlab"
	case rt.Path == "/api/v1/compare":
		path += "?a=gitlab/gitlab.example.com/0&b=gitlab/gitlab.example.com/0"
	case rt.Path == "/": // pages
	case strings.HasSuffix(rt.Path, "/"):
		path += "gitlab/gitlab.example.com/0"
	}
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", wire.ContentType())
	if rt.Role == httpapi.Cancel {
		r.Header.Set("Content-Type", "application/json")
	}
	if rt.Path == httpapi.HooksPath {
		r.Header.Set("X-Secret", "right")
	}
	if authorization != "" {
		r.Header.Set("Authorization", authorization)
	}
	return r
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// Each route without, with a wrong, with the right, and with the other role's
// token (T16), generated from the router.
func TestAccess_everyRoute(t *testing.T) {
	pages := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("a page")) })
	for _, open := range []bool{false, true} {
		clock := now()
		api, _ := newServer(t, 1, func(o *httpapi.Options) {
			o.Pages = pages
			o.Access = httpapi.NewAccess(httpapi.AccessOptions{Tokens: tokens(t), OpenRead: open, Now: func() time.Time { clock = clock.Add(time.Second); return clock }})
		})
		routes := api.Table()
		if len(routes) < 20 {
			t.Fatalf("%d routes: the router is not what this test thinks", len(routes))
		}
		for _, rt := range routes {
			for _, c := range []struct {
				name, authorization string
				anybody, read, push int // the answer by the route's role; 2: any of 2xx
			}{
				{"none", "", 2, 401, 401},
				{"wrong", "Bearer cmt_wrong", 2, 401, 401},
				{"a part of the right", "Bearer " + readToken[:len(readToken)-1], 2, 401, 401},
				{"empty", "Bearer ", 2, 401, 401},
				{"another scheme", "Digest " + readToken, 2, 401, 401},
				{"read", "Bearer " + readToken, 2, 2, 403},
				{"read in another case", "bearer  " + readToken, 2, 2, 403},
				{"read as password", basic("grafana", readToken), 2, 2, 403},
				{"read as password of another", basic("agents", readToken), 2, 401, 401},
				{"push", "Bearer " + pushToken, 2, 403, 2},
				{"push as password", basic("agents", pushToken), 2, 403, 2},
				{"cancel", "Bearer " + cancelToken, 2, 403, 403},
				{"long", "Bearer " + strings.Repeat("x", 600), 2, 401, 401},
			} {
				want := map[httpapi.Role]int{httpapi.Anybody: c.anybody, httpapi.Read: c.read, httpapi.Push: c.push}[rt.Role]
				if rt.Role == httpapi.Cancel { // neither of these tokens may
					if want = c.read; c.read == 2 || c.push == 2 {
						want = 403
					}
				}
				if strings.HasPrefix(c.name, "cancel") {
					want = map[httpapi.Role]int{httpapi.Anybody: 2, httpapi.Read: 403, httpapi.Push: 403, httpapi.Cancel: 2}[rt.Role]
				}
				if open && rt.Role == httpapi.Read {
					want = 2
				}
				w := httptest.NewRecorder()
				api.ServeHTTP(w, askFor(t, rt, c.authorization))
				if got := w.Code; got != want && (want != 2 || got/100 != 2) {
					t.Errorf("%s (%s, open %t) with %s: %d %s: want %d", rt.Path, rt.Role, open, c.name, got, w.Body, want)
				}
				if w.Code == 401 && !strings.HasPrefix(w.Header().Get("WWW-Authenticate"), "Bearer") {
					t.Errorf("%s: 401 without WWW-Authenticate", rt.Path)
				}
				if strings.Contains(w.Body.String(), "cmt_") {
					t.Errorf("%s: the answer has a token", rt.Path)
				}
			}
		}
	}
}

// Without tokens nobody pushes, loopback or not.
func TestAccess_noTokens(t *testing.T) {
	api, _ := newServer(t, 1, func(o *httpapi.Options) { o.Access = httpapi.NewAccess(httpapi.AccessOptions{OpenRead: true}) })
	if w := post(t, api, wire.RecordsPath, batch(t, build(0)), "Content-Type", wire.ContentType(), "Authorization", "Bearer x"); w.Code != http.StatusUnauthorized {
		t.Errorf("%d: want 401", w.Code)
	}
	if w := get(t, api, "/api/v1/builds"); w.Code != http.StatusOK {
		t.Errorf("%d: want 200", w.Code)
	}
}

// Guessing is slowed down for everybody who guesses and for nobody who knows
// (T17); what is turned away is counted by its reason.
func TestAccess_wrongTokensAreThrottled(t *testing.T) {
	clock := now()
	counted := map[string]int{}
	api, _ := newServer(t, 1, func(o *httpapi.Options) {
		o.Access = httpapi.NewAccess(httpapi.AccessOptions{Tokens: tokens(t), Now: func() time.Time { return clock }, Rejected: func(r string) { counted[r]++ }})
	})
	try := func(token string) int {
		return get(t, api, "/api/v1/builds", "Authorization", "Bearer "+token).Code
	}
	for range 10 {
		if got := try("wrong"); got != http.StatusUnauthorized {
			t.Fatalf("%d: want 401", got)
		}
	}
	for range 5 {
		if got := try("wrong"); got != http.StatusTooManyRequests {
			t.Errorf("%d: want 429", got)
		}
		if got := try(readToken); got != http.StatusOK {
			t.Errorf("%d with the right one: want 200", got)
		}
	}
	clock = clock.Add(100 * time.Millisecond)
	if a, b := try("wrong"), try("wrong"); a != http.StatusUnauthorized || b != http.StatusTooManyRequests {
		t.Errorf("%d, %d after a tenth of a second: want 401, 429", a, b)
	}
	try(pushToken)
	get(t, api, "/api/v1/builds")
	if counted["unauthorized"] != 12 || counted["throttled"] != 6 || counted["forbidden"] != 1 {
		t.Errorf("counted %v", counted)
	}
}

func TestParseTokens_failure(t *testing.T) {
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte("x")))
	for name, text := range map[string]string{
		"a role that is not known": "admin a " + hash, "no name": "read " + hash, "a short hash": "read a " + hash[:62],
		"a long hash": "read a " + hash + "00", "no hash": "read a cmt_secret", "four words": "read a b " + hash,
	} {
		ts, err := httpapi.ParseTokens("# first\n" + text)
		if !errors.Is(err, cimeter.ErrInvalid) || ts != nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%s: %v, %v: want invalid, by its line", name, ts, err)
		}
		if err != nil && (strings.Contains(err.Error(), "cmt_") || strings.Contains(err.Error(), hash[:32])) {
			t.Errorf("%s: %v repeats what is in the file", name, err)
		}
	}
	if _, err := httpapi.ParseTokens(strings.Repeat("read a "+hash+"\n", 10_001)); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("10001 tokens: %v: want invalid", err)
	}
}
