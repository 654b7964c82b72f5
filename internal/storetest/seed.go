package storetest

import (
	"math/rand/v2"
	"os"
	"strconv"
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
