package webconfig_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/httpapi/webconfig"
)

// writeCertificate makes a certificate for 127.0.0.1 and its key in dir.
func writeCertificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "EC PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return pool
}

// The password is "planted"; bcrypt of cost 4, for speed.
const users = "basic_auth_users:\n  prom: $2a$04$a/NJNmighax7DKxngSLMTeXc3dhUZHLZCuw81gw/OM/jy.e7z5ISi\n"

func start(t *testing.T, file string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	s := httpapi.NewServer(httpapi.New(httpapi.Options{}), nil)
	go func() {
		served <- s.Serve(ctx, l, func(l net.Listener, h *http.Server) error {
			return webconfig.Serve(l, h, file, slog.New(slog.DiscardHandler))
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestServe(t *testing.T) {
	dir := t.TempDir()
	pool := writeCertificate(t, dir)
	file := filepath.Join(dir, "web.yml")
	if err := os.WriteFile(file, []byte("tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"+users), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := start(t, file)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	for _, c := range []struct {
		name, user, password string
		status               int
	}{{"no password", "", "", 401}, {"wrong password", "prom", "x", 401}, {"unknown user", "x", "planted", 401}, {"right", "prom", "planted", 200}} {
		t.Run(c.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+addr+"/healthz", nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.user != "" {
				r.SetBasicAuth(c.user, c.password)
			}
			resp, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			io.Copy(io.Discard, resp.Body)
			if resp.StatusCode != c.status || resp.ProtoMajor != 2 {
				t.Errorf("%d over HTTP/%d: want %d over HTTP/2", resp.StatusCode, resp.ProtoMajor, c.status)
			}
		})
	}
	t.Run("nothing is told in clear", func(t *testing.T) {
		resp, err := http.Get("http://" + addr + "/healthz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("got %d: want 400", resp.StatusCode)
		}
	})
}

// A certificate that is replaced while the server runs is the next connection's
// (F24).
func TestServe_rotated(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "web.yml")
	if err := os.WriteFile(file, []byte("tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	get := func(addr string, pool *x509.CertPool) error {
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport}).Get("https://" + addr + "/healthz")
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	old := writeCertificate(t, dir)
	addr := start(t, file)
	if err := get(addr, old); err != nil {
		t.Fatal(err)
	}
	next := writeCertificate(t, dir)
	if err := get(addr, next); err != nil {
		t.Errorf("%v: want the new certificate without a restart", err)
	}
	if err := get(addr, old); err == nil {
		t.Error("the old certificate is still shown")
	}
}

func TestServe_Plain(t *testing.T) {
	resp, err := http.Get("http://" + start(t, "") + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Errorf("got %d: want 200", resp.StatusCode)
	}
}

func TestCheck_Failure(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"unknown.yml": "colour: red\n", "nocert.yml": "tls_server_config: {cert_file: x, key_file: y}\n"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := webconfig.Check(file); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: got %v: want an error that names it", name, err)
		}
	}
	missing := filepath.Join(dir, "missing.yml")
	if err := webconfig.Check(missing); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v: want not exist", err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := webconfig.Serve(l, &http.Server{}, missing, slog.New(slog.DiscardHandler)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v: want not exist", err)
	}
}
