package outbound_test

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/outbound"
)

func get(t *testing.T, c *outbound.Client, url string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(r)
	if err == nil {
		resp.Body.Close()
	}
	return resp, err
}

// A CA file that is put in another one's place is read after the failure that the
// old one caused; one that is no good is no server that is away.
func TestClient_newFiles(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	c := outbound.New(outbound.Options{CAFile: ca})
	t.Cleanup(c.Close)
	if _, err := get(t, c, s.URL); !errors.Is(err, os.ErrNotExist) || errors.Is(err, cimeter.ErrUnavailable) {
		t.Errorf("no file: %v", err)
	}
	write := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(ca, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write([]byte("no certificate"))
	if _, err := get(t, c, s.URL); !errors.Is(err, cimeter.ErrInvalid) || !strings.Contains(err.Error(), ca) {
		t.Errorf("no certificate in it: %v", err)
	}
	write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	if resp, err := get(t, c, s.URL); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Errorf("the right one: %v", err)
	}
}

// No redirect is followed, and an error repeats no address.
func TestClient_keepsToItself(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		http.Redirect(w, r, "/elsewhere", http.StatusFound)
	}))
	c := outbound.New(outbound.Options{})
	if resp, err := get(t, c, s.URL+"/?token=planted"); err != nil || resp.StatusCode != http.StatusFound || asked != 1 {
		t.Errorf("%v, asked %d times, want the redirect itself", err, asked)
	}
	s.Close()
	if _, err := get(t, c, s.URL+"/?token=planted"); !errors.Is(err, cimeter.ErrUnavailable) || strings.Contains(err.Error(), "planted") {
		t.Errorf("gone: %v, want unavailable without the address", err)
	}
}
