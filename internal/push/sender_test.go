package push_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/push"
	"github.com/cimeter/cimeter/internal/spool"
	"github.com/cimeter/cimeter/internal/tally"
)

// authority makes certificates for 127.0.0.1.
type authority struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pem  []byte
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func (a *authority) sign(t *testing.T, until time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(2), NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// A certificate that the CA file does not vouch for is refused and nothing is
// sent; a CA file that is put in its place while the agent runs is read (F24).
func TestSender_TLS(t *testing.T) {
	old, right := newAuthority(t), newAuthority(t)
	requests := 0
	for name, c := range map[string]struct {
		ca    *authority
		until time.Time
		want  string // "" is that it works
	}{
		"the right authority": {right, time.Now().Add(time.Hour), ""},
		"another authority":   {old, time.Now().Add(time.Hour), "unknown authority"},
		"an old certificate":  {right, time.Now().Add(-time.Hour), "expired"},
	} {
		t.Run(name, func(t *testing.T) {
			requests = 0
			stand := &standIn{}
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				requests++
				stand.serve(w, r)
			}))
			server.TLS = &tls.Config{Certificates: []tls.Certificate{right.sign(t, c.until)}}
			server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
			server.StartTLS()
			defer server.Close()
			ca := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(ca, c.ca.pem, 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := push.NewSender(push.SenderOptions{URL: server.URL, CAFile: ca, Token: func() (string, error) { return "cmt_secret", nil }})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			_, err = s.Records(t.Context(), [][]byte{[]byte(`{"key":"a/b"}`)})
			if c.want == "" {
				if err != nil || requests != 1 {
					t.Errorf("%v, %d requests", err, requests)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, cimeter.ErrUnavailable) || requests != 0 || strings.Contains(err.Error(), "cmt_") {
				t.Errorf("%v, %d requests: want %q and nothing sent", err, requests, c.want)
			}
			if c.ca == old {
				if err := os.WriteFile(ca, right.pem, 0o600); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Records(t.Context(), [][]byte{[]byte(`{"key":"a/b"}`)}); err != nil {
					t.Errorf("%v after the CA file was replaced", err)
				}
			}
		})
	}
}

// A certificate that is not vouched for is named on readyz: an operator must act.
func TestPusher_certificateIsNamed(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.StartTLS()
	defer server.Close()
	queue, err := spool.Open(spool.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer queue.Close()
	if err := queue.Add(key(1), []byte(`{"key":"gitlab/x/1"}`)); err != nil {
		t.Fatal(err)
	}
	s, err := push.NewSender(push.SenderOptions{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	p := push.New(push.Options{Server: s, Spool: queue, Tally: tally.New(tally.Options{}), Machine: "m"}, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); p.Run(ctx) }()
	deadline := time.After(time.Minute)
	for p.Ready() == nil {
		select {
		case <-deadline:
			t.Fatal("ready though the certificate is not vouched for")
		case <-time.After(5 * time.Millisecond):
		}
	}
	cancel()
	<-done
	if err := p.Ready(); !strings.Contains(err.Error(), "certificate") || queue.Stats().Records != 1 {
		t.Errorf("%v, %+v: want the certificate named and the record kept", err, queue.Stats())
	}
}

func key(n int) string { return record(n).Key }

func TestNewSender_failure(t *testing.T) {
	for _, url := range []string{"", "ftp://x", "http://", "http://user:hunter2@x", "http://x?q=1", "http://x#f", "http://%zz", "x:1"} {
		s, err := push.NewSender(push.SenderOptions{URL: url})
		if !errors.Is(err, cimeter.ErrInvalid) || s != nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, %v: want invalid", url, s, err)
		}
	}
}

// Answers that are none of ours are no success, and a token goes to no other
// host.
func TestSender_strangeAnswers(t *testing.T) {
	elsewhere := 0
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { elsewhere++ }))
	defer other.Close()
	for name, answer := range map[string]http.HandlerFunc{
		"HTML":            func(w http.ResponseWriter, r *http.Request) { w.Write([]byte("<html>")) },
		"too few results": func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(`{"results":[]}`)) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		},
		"half an answer": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.Write([]byte("{"))
		},
		"an endless answer":   func(w http.ResponseWriter, r *http.Request) { w.Write(make([]byte, 4<<20)) },
		"a broken connection": func(w http.ResponseWriter, r *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(answer)
			defer server.Close()
			s, err := push.NewSender(push.SenderOptions{URL: server.URL, Token: func() (string, error) { return "cmt_secret", nil }})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if results, err := s.Records(t.Context(), [][]byte{[]byte("{}")}); err == nil || results != nil || strings.Contains(err.Error(), "cmt_") {
				t.Errorf("%v, %v: want an error only", results, err)
			}
		})
	}
	if elsewhere > 0 {
		t.Error("a redirect was followed")
	}
}

// A server that never answers, or with a byte now and then, costs a try its time
// and no goroutine (F23).
func TestSender_silentServer(t *testing.T) {
	for name, answer := range map[string]string{"silent": "", "a byte now and then": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var clients sync.WaitGroup
			before := runtime.NumGoroutine()
			clients.Go(func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					clients.Go(func() {
						defer c.Close()
						if answer == "" {
							io.Copy(io.Discard, c) // until it hangs up
							return
						}
						if _, err := c.Read(make([]byte, 1)); err != nil { // what comes before the question is no answer
							return
						}
						_, err := io.WriteString(c, answer)
						for err == nil {
							<-time.After(time.Millisecond)
							_, err = c.Write([]byte(" "))
						}
					})
				}
			})
			s, err := push.NewSender(push.SenderOptions{URL: "http://" + l.Addr().String()})
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				if _, err := s.Records(ctx, [][]byte{[]byte("{}")}); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, cimeter.ErrUnavailable) {
					t.Errorf("%v: want the deadline, and it to be tried again", err)
				}
				cancel()
			}
			s.Close()
			l.Close()
			clients.Wait()
			deadline := time.After(10 * time.Second)
			for runtime.NumGoroutine() > before+1 {
				select {
				case <-deadline:
					t.Fatalf("%d goroutines: want %d as before", runtime.NumGoroutine(), before)
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
}
