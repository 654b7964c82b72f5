package storetest

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Rounds is how often a process is killed; STORE_ROUNDS asks for more.
func Rounds(t testing.TB, n int) int {
	if v, err := strconv.Atoi(os.Getenv("STORE_ROUNDS")); err == nil {
		return v
	}
	if testing.Short() {
		return n / 5
	}
	return n
}

// Seeded is a source of random moments, which is printed.
func Seeded(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	if v, err := strconv.ParseUint(os.Getenv("STORE_SEED"), 10, 64); err == nil {
		seed = v
	}
	t.Logf("STORE_SEED=%d plays this again", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// Same ends a test, and tells the first line in which two states of a store differ.
func Same(t testing.TB, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Fatalf("%s: %s\nwant %s", what, g[i], w[i])
		}
	}
	t.Fatalf("%s: %d lines, want %d", what, len(g), len(w))
}
