package wire_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/wire"
)

func host() *wire.Host {
	return &wire.Host{
		OS: "Debian GNU/Linux 12 (bookworm)", Kernel: "6.1.0-28-amd64", Cgroup: "hybrid", Pool: "spot",
		BootedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), StartedAt: time.Date(2026, 1, 2, 4, 4, 5, 0, time.UTC),
		CPUCores: cimeter.Some(8.0), CPUSeconds: &wire.HostCPU{Builds: 120, Other: 7, Cimeter: 0.5},
		MemoryBytes: &wire.HostMemory{Total: 8 << 30, Available: cimeter.Some[uint64](0)},
		IOBytes:     &cimeter.ReadWrite[uint64]{Read: 1, Write: 2}, NetworkBytes: &cimeter.ReceiveTransmit[uint64]{Receive: 3, Transmit: 4},
		PressureSeconds: &cimeter.PressureSeconds{CPUSome: cimeter.Some(0.0)}, Coverage: cimeter.Some(0.97), Containers: cimeter.Some[uint64](0),
		Agent: &wire.HostAgent{CPUSeconds: cimeter.Some(0.5), MemoryBytes: cimeter.Some[uint64](31 << 20)},
	}
}

// A heartbeat of this version comes back as it was, a known zero as such; one
// of the version before, which tells nothing of its machine, is taken.
func TestHost(t *testing.T) {
	for name, h := range map[string]*wire.Host{"all": host(), "nothing known": {}, "an agent of the version before": nil} {
		beat := wire.Heartbeat{Agent: "a1", Machine: "ci-7", IntervalSeconds: 5, Host: h, Running: []wire.Running{}}
		b, err := json.Marshal(beat)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := wire.DecodeHeartbeat(strings.NewReader(string(b)), ""); err != nil || !reflect.DeepEqual(got, beat) {
			t.Errorf("%s: got %+v, %v: want %+v", name, got, err, beat)
		}
		if h != nil && *h == (wire.Host{}) && !strings.Contains(string(b), `"host":{}`) {
			t.Errorf("%s: %s: want nothing in place of zeros", name, b)
		}
	}
}

// Numbers that no machine can have are refused; what a newer agent says besides
// is passed over.
func TestHost_bounds(t *testing.T) {
	for doc, ok := range map[string]bool{
		`{"cpu_cores":8,"something_new":[1,{}]}`:                   true,
		`{"cpu_cores":-1}`:                                         false,
		`{"cpu_cores":1e300}`:                                      false,
		`{"coverage":1.5}`:                                         false,
		`{"cpu_seconds":{"builds":-3,"other":0,"cimeter":0}}`:      false,
		`{"memory_bytes":{"total":5,"available":6}}`:               false,
		`{"memory_bytes":{"total":18446744073709551615}}`:          false,
		`{"memory_bytes":{"total":-5}}`:                            false,
		`{"pressure_seconds":{"io_full":1e99}}`:                    false,
		`{"agent":{"cpu_seconds":-0.1}}`:                           false,
		`{"kernel":"` + strings.Repeat("x", 5000) + `"}`:           false,
		`{"booted_at":"yesterday"}`:                                false,
		`{"cpu_seconds":null,"memory_bytes":null,"coverage":null}`: true,
	} {
		_, err := wire.DecodeHeartbeat(strings.NewReader(`{"agent":"a","machine":"m","interval_seconds":5,"host":`+doc+`}`), "")
		if ok != (err == nil) || err != nil && !errors.Is(err, cimeter.ErrInvalid) {
			t.Errorf("%.80s: %v", doc, err)
		}
	}
}
