package droneapi_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/citest"
	"github.com/cimeter/cimeter/internal/ci/drone/droneapi"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func hook() droneapi.Hook { return droneapi.Hook{URL: "https://drone.example.com", Secret: token} }

// sign returns the headers that Drone sends with a body at a time.
func sign(secret string, body []byte, at time.Time) http.Header {
	sum := sha256.Sum256(body)
	h := http.Header{}
	h.Set("X-Drone-Event", "build")
	h.Set("Date", at.UTC().Format(http.TimeFormat))
	h.Set("Digest", "SHA-256="+base64.StdEncoding.EncodeToString(sum[:]))
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("date: " + h.Get("Date") + "\ndigest: " + h.Get("Digest")))
	h.Set("Signature", `keyId="hmac-key",algorithm="hmac-sha256",headers="date digest",signature="`+base64.StdEncoding.EncodeToString(mac.Sum(nil))+`"`)
	return h
}

func body(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/hook.json")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestHookVerify(t *testing.T) {
	b := body(t)
	good := func(change func(http.Header)) http.Header {
		h := sign(citest.Token, b, now)
		change(h)
		return h
	}
	for _, test := range []struct {
		name   string
		header http.Header
		body   []byte
		ok     bool
	}{
		{"good", good(func(http.Header) {}), b, true},
		{"in Authorization", good(func(h http.Header) {
			h.Set("Authorization", "Signature "+h.Get("Signature"))
			h.Del("Signature")
		}), b, true},
		{"late by four minutes", sign(citest.Token, b, now.Add(-4*time.Minute)), b, true},
		{"an hour late", sign(citest.Token, b, now.Add(-time.Hour)), b, false},
		{"an hour early", sign(citest.Token, b, now.Add(time.Hour)), b, false},
		{"another secret", sign("x", b, now), b, false},
		{"no secret", sign("", b, now), b, false},
		{"another body", good(func(http.Header) {}), append([]byte(" "), b...), false},
		{"another date", good(func(h http.Header) { h.Set("Date", now.Add(time.Second).Format(http.TimeFormat)) }), b, false},
		{"another digest too", good(func(h http.Header) {
			h.Set("Digest", sign("", []byte("{}"), now).Get("Digest"))
		}), []byte("{}"), false},
		{"two digests", good(func(h http.Header) { h.Add("Digest", "SHA-256=x") }), b, false},
		{"signs the date alone", good(func(h http.Header) { h.Set("Signature", strings.Replace(h.Get("Signature"), "date digest", "date", 1)) }), b, false},
		{"signs nothing", good(func(h http.Header) { h.Set("Signature", strings.Replace(h.Get("Signature"), "date digest", "", 1)) }), b, false},
		{"another algorithm", good(func(h http.Header) { h.Set("Signature", strings.Replace(h.Get("Signature"), "sha256", "sha1", 1)) }), b, false},
		{"none", good(func(h http.Header) { h.Del("Signature") }), b, false},
		{"garbage", good(func(h http.Header) { h.Set("Signature", `signature="`) }), b, false},
		{"garbage in base64", good(func(h http.Header) { h.Set("Signature", h.Get("Signature")+`,signature="!"`) }), b, false},
		{"empty", http.Header{}, nil, false},
	} {
		err := hook().Verify(test.header, test.body, now)
		if (err == nil) != test.ok || err != nil && !errors.Is(err, cimeter.ErrUnauthorized) {
			t.Errorf("%s: %v", test.name, err)
		}
		if err != nil && strings.Contains(err.Error(), citest.Token) {
			t.Errorf("%s: %v holds the secret", test.name, err)
		}
	}
	none := droneapi.Hook{Secret: func() (string, error) { return "", nil }}
	if err := none.Verify(sign("", b, now), b, now); !errors.Is(err, cimeter.ErrUnauthorized) {
		t.Errorf("without a secret: %v: want all refused", err)
	}
}

func TestHookParse(t *testing.T) {
	b := body(t)
	h := sign(citest.Token, b, now)
	r, id, err := hook().Parse(h, b)
	if err != nil || id == "" {
		t.Fatalf("id %q, %v", id, err)
	}
	citest.Report(t, "testdata/hook.golden.json", r)
	if _, again, _ := hook().Parse(h, b); again != id {
		t.Errorf("id %q, then %q: want the same", id, again)
	}
	if _, other, _ := hook().Parse(sign(citest.Token, b, now.Add(time.Second)), b); other == id {
		t.Errorf("a second later the id is the same")
	}
	for body, want := range map[string]error{
		`{"event":"user","action":"created","user":{"login":"a"}}`: cimeter.ErrUnsupported, `{"event":"repo","repo":{"slug":"a/b"}}`: cimeter.ErrUnsupported,
		``: cimeter.ErrInvalid, `null`: cimeter.ErrUnsupported, `[]`: cimeter.ErrInvalid, `{"event":"build"}`: cimeter.ErrInvalid,
		`{"event":"build","repo":{"slug":"a/b"},"build":{"number":0}}`:         cimeter.ErrInvalid,
		`{"event":"build","repo":{"slug":"a/b"},"build":{"number":"1"}}`:       cimeter.ErrInvalid,
		`{"event":"build","repo":{"slug":"a/b"},"build":{"number":1}}`:         nil,
		`{"event":"build","repo":{"slug":"a/b"},"build":{"number":1,"stages":`: cimeter.ErrInvalid,
	} {
		if r, _, err := hook().Parse(h, []byte(body)); !errors.Is(err, want) || len(r.Jobs) > 0 || r.WholeJobs {
			t.Errorf("%s: %+v, %v: want no job and %v", body, r, err, want)
		}
	}
}

func FuzzHook(f *testing.F) {
	b := body(f)
	f.Add(b, sign(citest.Token, b, now).Get("Signature"))
	f.Add([]byte(`{"event":"build","repo":{"slug":"a/b"},"build":{"number":1,"stages":[{"number":1},{"number":1}]}}`), `signature="a"`)
	f.Fuzz(func(t *testing.T, body []byte, signature string) {
		h := http.Header{"Signature": {signature}}
		if hook().Verify(h, body, now) == nil {
			t.Fatal("verified without date and digest")
		}
		r, _, err := hook().Parse(h, body)
		citest.Sane(t, r, err)
	})
}

// What the library that Drone signs with (99designs/httpsignatures-go) made of a body.
func TestHookOfDrone(t *testing.T) {
	h := http.Header{
		"Date":          {"Mon, 30 Nov 2026 12:00:00 GMT"},
		"Digest":        {"SHA-256=HVvocRUSOTa7btHwKhLoWJDooIfH/9+DePveJEhfTe8="},
		"X-Drone-Event": {"user"},
		"Signature":     {`keyId="hmac-key",algorithm="hmac-sha256",signature="GclFi3JA40XRdwVwfm0H6Cslah+qGEjlRZ/qh6WML/s=",headers="date digest"`},
	}
	hook := droneapi.Hook{URL: "https://drone.example.com", Secret: func() (string, error) { return "only-for-tests", nil }}
	if err := hook.Verify(h, []byte(`{"event":"user","action":"created"}`), now); err != nil {
		t.Error(err)
	}
}
