package server_test

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/push"
)

// inNet says that a test runs in a namespace of networks of its own.
const inNet = "SERVER_IN_NET"

// rule adds or deletes a rule of the kernel's for packets that come in.
func rule(t *testing.T, verb string, rest ...string) {
	t.Helper()
	if err := command("iptables", append([]string{"--wait", verb, "INPUT", "--in-interface", "lo", "--protocol", "tcp"}, rest...)...); err != nil {
		t.Fatal(err)
	}
}

// impatient is a transport that gives a try up after a while, and leaves no
// connection of it.
type impatient struct {
	to    *http.Transport
	after time.Duration
}

// RoundTrip implements http.RoundTripper.
func (i *impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(r.Context(), i.after)
	context.AfterFunc(ctx, cancel)
	return i.to.RoundTrip(r.WithContext(ctx)) // the answer's body ends with the timeout
}

// The kernel drops three packets of ten, resets some connections, and then drops whole
// requests, and whole answers, of connections that stay open: each record is there
// once (F22).
func TestServer_lostPackets(t *testing.T) {
	if os.Getenv(inNet) == "" {
		cmd := exec.Command("unshare", "--net", os.Args[0], "-test.run=^TestServer_lostPackets$", "-test.v", "-test.timeout=3m")
		cmd.Env = append(os.Environ(), inNet+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v (it needs root, unshare, ip and iptables)\n%s", err, out)
		}
		t.Logf("%s", out)
		return
	}
	random := seeded(t)
	if err := command("ip", "link", "set", "lo", "up"); err != nil {
		t.Fatal(err)
	}
	p := startProcess(t, t.TempDir(), "")
	defer p.end(syscall.SIGTERM)
	_, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		t.Fatal(err)
	}
	to := &impatient{to: http.DefaultTransport.(*http.Transport).Clone(), after: 1500 * time.Millisecond}
	to.to.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil { // what a try has sent is not sent again after it was given up
			err = c.(*net.TCPConn).SetLinger(0)
		}
		return c, err
	}
	way, err := push.NewSender(push.SenderOptions{URL: "http://" + p.addr, Transport: to})
	if err != nil {
		t.Fatal(err)
	}
	l := &load{way: way, step: 1}
	try := func() bool {
		if len(l.left) < 100 {
			add(l, rand.New(rand.NewPCG(random.Uint64(), 0)))
		}
		return l.send(t)
	}
	lossy := [][]string{
		{"--match", "statistic", "--mode", "random", "--probability", "0.30", "--jump", "DROP"},
		{"--destination-port", port, "--match", "statistic", "--mode", "random", "--probability", "0.05", "--jump", "REJECT", "--reject-with", "tcp-reset"},
	}
	for _, r := range lossy {
		rule(t, "--append", r...)
	}
	taken, tries := 0, 0
	for ; taken < 12 && tries < 60; tries++ {
		if try() {
			taken++
		}
	}
	for _, r := range lossy {
		rule(t, "--delete", r...)
	}
	if taken < 12 {
		t.Errorf("%d of %d tries taken", taken, tries)
	}
	// A half open connection: what carries data is lost, in one direction, and
	// nobody is told. Over a whole network a try may take its time.
	const whole, dropped = time.Minute, 300 * time.Millisecond
	for name, side := range map[string]string{"requests": "--destination-port", "answers": "--source-port"} {
		to.after = whole
		if !try() { // a connection is open
			t.Errorf("%s: a batch was not taken over a whole network", name)
		}
		before := len(stored(t, p.addr))
		drop := []string{side, port, "--match", "length", "--length", "100:65535", "--jump", "DROP"}
		rule(t, "--append", drop...)
		to.after = dropped
		if try() {
			t.Errorf("a batch was answered for though all %s are dropped", name)
		}
		rule(t, "--delete", drop...)
		after := len(stored(t, p.addr))
		for end := time.Now().Add(whole); name == "answers" && after == before && time.Now().Before(end); after = len(stored(t, p.addr)) {
			<-time.After(20 * time.Millisecond) // the server may not have done with it when it was given up
		}
		if (after > before) != (name == "answers") {
			t.Errorf("%s are dropped: %d rows before, %d after", name, before, after)
		}
		to.after = whole
		if !try() {
			t.Errorf("%s: a batch was not taken when the network was whole again", name)
		}
	}
	exactlyOnce(t, stored(t, p.addr), l.next)
	t.Logf("%d tries over a network that loses three packets of ten, %d taken; %d records: lost 0, twice 0", tries, taken, l.next)
}
