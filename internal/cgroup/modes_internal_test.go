package cgroup

import (
	"math/rand/v2"
	"testing"
)

func TestModes_advance(t *testing.T) {
	for _, c := range []struct {
		name        string
		told, ticks modes
		total       uint64
		want        modes
	}{
		{"no tick yet is user time", modes{}, modes{}, 4_000_000, modes{user: 4_000_000}},
		{"by the ticks", modes{}, modes{user: 30_000_000, system: 10_000_000}, 44_000_000, modes{33_000_000, 11_000_000}},
		{"only system ticks", modes{}, modes{system: 10_000_000}, 7_000_000, modes{system: 7_000_000}},
		{"system time does not fall", modes{10, 30}, modes{user: 90, system: 10}, 100, modes{70, 30}},
		{"user time does not fall", modes{60, 10}, modes{user: 10, system: 90}, 100, modes{60, 40}},
		{"a total that stepped back", modes{60, 40}, modes{user: 1, system: 1}, 99, modes{60, 40}},
		{"large", modes{}, modes{user: 1 << 62, system: 1 << 62}, 1 << 63, modes{1 << 62, 1 << 62}},
	} {
		if got := c.told.advance(c.ticks, c.total); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

// Whatever the ticks say, the sum is the total and neither part falls.
func TestModes_advance_property(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		var m, ticks modes
		total := uint64(0)
		for range 100 {
			total += rng.Uint64N(5e9)
			if rng.IntN(3) == 0 {
				ticks.user += rng.Uint64N(500) * 10_000_000
				ticks.system += rng.Uint64N(500) * 10_000_000
			}
			n := m.advance(ticks, total)
			if n.user < m.user || n.system < m.system || n.user+n.system != total {
				t.Fatalf("seed %d: %+v after %+v, total %d, ticks %+v", seed, n, m, total, ticks)
			}
			m = n
		}
	}
}
