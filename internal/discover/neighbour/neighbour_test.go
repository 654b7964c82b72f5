package neighbour_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/discover/neighbour"
	"github.com/cimeter/cimeter/internal/testtools"
)

// A real node_exporter is found, and only as what it is.
func TestFind_nodeExporter(t *testing.T) {
	p := testtools.Start(t, testtools.NodeExporter, "--web.listen-address=127.0.0.1:0", "--collector.disable-defaults", "--collector.loadavg")
	at := fmt.Sprintf("127.0.0.1:%d", p.Ports(t, "tcp", 1)[0])
	for job, want := range map[string]bool{neighbour.NodeExporter: true, neighbour.Cadvisor: false} {
		if found, err := neighbour.Find(t.Context(), job, at); err != nil || found != want {
			t.Errorf("%s: %t, %v: want %t", job, found, err, want)
		}
	}
	p.Kill()
	if found, err := neighbour.Find(t.Context(), neighbour.NodeExporter, at); err != nil || found {
		t.Errorf("%t, %v after its end", found, err)
	}
}

// cAdvisor runs nowhere here: its page begins as google/cadvisor's
// cmd/internal/pages/templates/containers.html does.
func TestFind_cadvisor(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/containers/" {
			http.Redirect(w, r, "/containers/", http.StatusTemporaryRedirect)
			return
		}
		io.WriteString(w, "<html>\n  <head>\n    <title>cAdvisor - /</title>\n")
	}))
	defer server.Close()
	for job, want := range map[string]bool{neighbour.Cadvisor: true, neighbour.NodeExporter: false} {
		if found, err := neighbour.Find(t.Context(), job, strings.TrimPrefix(server.URL, "http://")); err != nil || found != want {
			t.Errorf("%s: %t, %v: want %t", job, found, err, want)
		}
	}
}

func TestFind_others(t *testing.T) {
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for b := make([]byte, 1<<16); ; {
			if _, err := w.Write(b); err != nil {
				return
			}
		}
	}))
	defer endless.Close()
	private := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
		io.WriteString(w, "Node Exporter")
	}))
	defer private.Close()
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
			io.WriteString(c, "SSH-2.0-OpenSSH_9.2\r\n")
			c.Close()
		}
	}()
	for name, at := range map[string]string{
		"endless": strings.TrimPrefix(endless.URL, "http://"), "private": strings.TrimPrefix(private.URL, "http://"), "no HTTP": l.Addr().String(),
	} {
		if found, err := neighbour.Find(t.Context(), neighbour.NodeExporter, at); err != nil || found {
			t.Errorf("%s: %t, %v: want it not taken for one", name, found, err)
		}
	}
	if _, err := neighbour.Find(t.Context(), "sshd", "127.0.0.1:1"); !errors.Is(err, cimeter.ErrInvalid) {
		t.Errorf("%v: want an exporter that is not known refused", err)
	}
}
