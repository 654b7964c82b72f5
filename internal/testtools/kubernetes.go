package testtools

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// KubeAPI is a kube-apiserver with an etcd of its own, and neither a kubelet nor
// a controller: what a test puts there stays as it is.
type KubeAPI struct {
	*Process
	URL    string
	Token  string // of an administrator
	CAFile string // of the authority that signed its certificate
	client *http.Client
}

// StartKubeAPI runs a kube-apiserver and waits until its namespace default is
// there.
func StartKubeAPI(t testing.TB) *KubeAPI {
	t.Helper()
	dir := t.TempDir()
	ports := freePorts(t, 3)
	client, peer := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1]
	etcd := Start(t, Etcd, "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--unsafe-no-fsync", "--log-level", "error")
	etcd.Ports(t, "tcp", 2)
	k := &KubeAPI{URL: "https://127.0.0.1:" + ports[2], Token: "only-for-tests", CAFile: filepath.Join(dir, "certs", "apiserver.crt")}
	key := filepath.Join(dir, "sa.key")
	writeRSAKey(t, key)
	tokens := filepath.Join(dir, "tokens")
	if err := os.WriteFile(tokens, []byte(k.Token+",admin,1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k.Process = Start(t, KubeAPIServer, "--etcd-servers", client, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", ports[2],
		"--cert-dir", filepath.Join(dir, "certs"), "--service-account-key-file", key, "--service-account-signing-key-file", key,
		"--service-account-issuer", "https://kubernetes.default", "--service-cluster-ip-range", "10.96.0.0/24", "--token-auth-file", tokens,
		"--authorization-mode", "RBAC", "--disable-admission-plugins", "ServiceAccount", "--endpoint-reconciler-type", "none")
	for end := time.Now().Add(2 * time.Minute); ; {
		if status, _ := k.Ask(t, http.MethodGet, "/api/v1/namespaces/default", nil); status == http.StatusOK {
			return k
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

// Ask puts a request of the administrator; body is JSON of what it is. The
// status is 0 while nobody answers.
func (k *KubeAPI) Ask(t testing.TB, method, path string, body any) (status int, answer []byte) {
	t.Helper()
	var b []byte
	if body != nil {
		var err error
		if b, err = json.Marshal(body); err != nil {
			t.Fatal(err)
		}
	}
	if k.client == nil {
		// It signs a certificate for itself when it begins.
		ca, err := os.ReadFile(k.CAFile)
		if err != nil {
			return 0, nil
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(ca) {
			return 0, nil
		}
		k.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
		t.Cleanup(k.client.CloseIdleConnections)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, k.URL+path, bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+k.Token)
	r.Header.Set("Content-Type", "application/json")
	resp, err := k.client.Do(r)
	if err != nil {
		return 0, fmt.Append(nil, err)
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		return 0, fmt.Append(nil, err)
	}
	return resp.StatusCode, answer
}

func writeRSAKey(t testing.TB, path string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	b := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
