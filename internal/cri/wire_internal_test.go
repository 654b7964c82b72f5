package cri

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cimeter/cimeter"
)

func TestRequests(t *testing.T) {
	for milli := int64(3); milli <= 64000; milli++ { // 1 and 2 become the kernel's least, which is none
		shares := milli * 1024 / 1000
		if got := requests(shares, 0, 0).CPUCores; got != cimeter.Some(float64(milli)/1000) {
			t.Fatalf("%d millicores are %d shares, read as %v", milli, shares, got)
		}
	}
	for _, shares := range []int64{0, 2, -1} {
		if r := requests(shares, 1<<30, 900); r != (cimeter.Requests{}) {
			t.Errorf("%d shares: %+v, want nothing asked for", shares, r)
		}
	}
	if r := requests(2, 1<<30, guaranteed); r.MemoryBytes != cimeter.Some[uint64](1<<30) {
		t.Errorf("a guaranteed pod: %+v, want its limit", r)
	}
}

func TestMessage(t *testing.T) {
	for name, text := range map[string]string{
		"compressed": "\x01\x00\x00\x00\x01x", "over the bound": "\x00\xff\xff\xff\xff", "cut off": "\x00\x00\x00\x00\x05abc", "half a head": "\x00\x00",
	} {
		if b, err := message(strings.NewReader(text), nil); err == nil {
			t.Errorf("%s: %q, want an error", name, b)
		}
	}
}

func TestPair_bounds(t *testing.T) {
	var m map[string]string
	entry := func(k, v string) []byte {
		b := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), k)
		return protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), v)
	}
	m, err := pair(m, entry("long", strings.Repeat("x", maxValue+1)))
	if err != nil || len(m) != 0 {
		t.Errorf("a value of more than %d bytes: %d entries, %v", maxValue, len(m), err)
	}
	for i := range 2 * maxPairs {
		if m, err = pair(m, entry(strings.Repeat("k", i+1), "v")); err != nil {
			t.Fatal(err)
		}
	}
	if len(m) != maxPairs {
		t.Errorf("%d entries, want at most %d", len(m), maxPairs)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("\x0a\x02p1\x12\x04\x0a\x02ab"))
	f.Add(message1(message1([]byte("x"))))
	f.Add(bytes.Repeat([]byte{0xff}, 20))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, isStatus := range []bool{false, true} {
			if p, err := parsePod(b, isStatus); err == nil {
				_ = p.container()
			}
			if c, err := parseContainer(b, isStatus); err == nil {
				_ = c.container("s", nil)
				if c.state < created || c.state > exited {
					t.Errorf("state %d", c.state)
				}
			}
		}
		_, _ = message(bytes.NewReader(b), nil)
	})
}

// What a list of before an event says is no news, and a container that is gone while it
// ran has ended.
func TestFollower_states(t *testing.T) {
	var got []string
	f := &follower{Client: &Client{seen: map[string]seen{}}, open: map[string]*open{}, fn: func(e cimeter.ContainerEvent) {
		got = append(got, [...]string{"", "created", "started", "died", "killed", "destroyed"}[e.Kind])
	}}
	for _, s := range []state{running, exited, running, created, exited} {
		if err := f.observe(t.Context(), &listed{cimeter.Container{ID: "p", Sandbox: true}, s}); err != nil {
			t.Fatal(err)
		}
	}
	if want := "created started died"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %s", got, want)
	}
	got = nil
	f.destroyed("p", seen{state: running}, time.Now(), true)
	if want := "died destroyed"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %s", got, want)
	}
	k := (&container{id: "c", name: "build"}).container("p", &pod{host: true})
	if k.NetworkMode != "host" {
		t.Errorf("network mode %q of a container of a pod in the host's network", k.NetworkMode)
	}
}

// The states of the interface: CONTAINER_CREATED 0, RUNNING 1, EXITED 2, UNKNOWN 3;
// SANDBOX_READY 0, NOTREADY 1. What a runtime has lost, or a later one calls by a number
// that is not known, does not run.
func TestStates(t *testing.T) {
	for v, want := range map[uint64]state{0: created, 1: running, 2: exited, 3: exited, 99: exited, 1 << 63: exited} {
		if got := containerState(v); got != want {
			t.Errorf("container's state %d is %d: want %d", v, got, want)
		}
	}
	for v, want := range map[uint64]state{0: running, 1: exited, 99: exited} {
		if got := sandboxState(v); got != want {
			t.Errorf("sandbox's state %d is %d: want %d", v, got, want)
		}
	}
}
