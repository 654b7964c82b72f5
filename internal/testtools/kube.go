package testtools

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// KubeServer is a kube-apiserver with an etcd of its own, and no node.
type KubeServer struct {
	*Process
	URL       string // https
	CAFile    string // of its certificate
	TokenFile string // of an administrator
	// ReaderTokenFile is of a user without any right: RBAC gives it what a test
	// binds to the user "reader".
	ReaderTokenFile string

	client *http.Client
	token  string
}

// StartKube runs a kube-apiserver and waits until it is ready.
func StartKube(t testing.TB) *KubeServer {
	t.Helper()
	server, etcd := Path(t, KubeAPIServer), Path(t, Etcd)
	dir := t.TempDir()
	ports := freePorts(t, 3)
	clients, peers := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	// Cleanups run last first: the server ends before the etcd that it asks.
	Run(t, etcd, "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers, "--unsafe-no-fsync", "--log-level", "warn")
	k := &KubeServer{
		URL: "https://127.0.0.1:" + ports[2], CAFile: filepath.Join(dir, "certs", "apiserver.crt"), token: "admin-token",
		TokenFile: file(t, dir, "token", "admin-token\n"), ReaderTokenFile: file(t, dir, "reader", "reader-token\n"),
	}
	public, private := serviceAccountKeys(t, dir)
	k.Process = Run(t, server, "--etcd-servers", clients, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", ports[2],
		"--cert-dir", filepath.Join(dir, "certs"), "--service-account-key-file", public, "--service-account-signing-key-file", private,
		"--service-account-issuer", "https://kubernetes.default", "--service-cluster-ip-range", "10.96.0.0/24",
		"--token-auth-file", file(t, dir, "tokens", "admin-token,admin,1,system:masters\nreader-token,reader,2\n"), "--authorization-mode", "RBAC",
		"--disable-admission-plugins", "ServiceAccount", "--endpoint-reconciler-type", "none")
	for end := time.Now().Add(2 * time.Minute); ; {
		if k.client == nil {
			k.client = trusting(k.CAFile)
		}
		if k.client != nil {
			_, ready := k.Try(t, http.MethodGet, "/readyz", "", "")
			_, there := k.Try(t, http.MethodGet, "/api/v1/namespaces/default", "", "")
			if ready == http.StatusOK && there == http.StatusOK {
				return k
			}
		}
		select {
		case <-k.Done():
			t.Fatalf("kube-apiserver ended:\n%s", k.Output())
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(end) {
			t.Fatalf("kube-apiserver is not ready:\n%s", k.Output())
		}
	}
}

// Ask sends a request as the administrator and returns the answer; the test fails
// when it is no good one. contentType is for PATCH; "" is JSON.
func (k *KubeServer) Ask(t testing.TB, method, path, contentType, body string) []byte {
	t.Helper()
	b, status := k.Try(t, method, path, contentType, body)
	if status < 200 || status > 299 {
		t.Fatalf("%s %s: %d: %.500s", method, path, status, b)
	}
	return b
}

// Try is Ask for a request whose answer may be any; status 0: there was none.
func (k *KubeServer) Try(t testing.TB, method, path, contentType, body string) (answer []byte, status int) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, k.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if contentType == "" {
		contentType = "application/json"
	}
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Authorization", "Bearer "+k.token)
	resp, err := k.client.Do(r)
	if err != nil {
		return nil, 0
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		return nil, 0
	}
	return answer, resp.StatusCode
}

// trusting returns a client that trusts the certificates of a file; nil: the server
// has not made it yet.
func trusting(caFile string) *http.Client {
	b, err := os.ReadFile(caFile)
	pool := x509.NewCertPool()
	if err != nil || !pool.AppendCertsFromPEM(b) {
		return nil
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, ForceAttemptHTTP2: true}}
}

func file(t testing.TB, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func serviceAccountKeys(t testing.TB, dir string) (public, private string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	both := make(map[string]string)
	for name, marshal := range map[string]func() ([]byte, error){
		"PRIVATE KEY": func() ([]byte, error) { return x509.MarshalPKCS8PrivateKey(key) },
		"PUBLIC KEY":  func() ([]byte, error) { return x509.MarshalPKIXPublicKey(key.Public()) },
	} {
		der, err := marshal()
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := pem.Encode(&b, &pem.Block{Type: name, Bytes: der}); err != nil {
			t.Fatal(err)
		}
		both[name] = file(t, dir, fmt.Sprintf("sa-%d.pem", len(both)), b.String())
	}
	return both["PUBLIC KEY"], both["PRIVATE KEY"]
}
