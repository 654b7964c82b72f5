package prometheus

import (
	"math"
	"math/big"
	"strconv"
	"testing"
	"testing/quick"
)

func TestAppendScaled(t *testing.T) {
	for _, c := range []struct {
		v        uint64
		decimals int
		want     string
	}{
		{0, 9, "0"}, {1, 9, "0.000000001"}, {1_000_000_000, 9, "1"}, {1_500_000_000, 9, "1.5"},
		{12_000_000_340, 9, "12.00000034"}, {math.MaxUint64, 9, "18446744073.709551615"},
		{math.MaxUint64, 0, "18446744073709551615"}, {0, 0, "0"},
	} {
		if got := string(appendScaled(nil, c.v, c.decimals)); got != c.want {
			t.Errorf("%d with %d decimals: %s: want %s", c.v, c.decimals, got, c.want)
		}
	}
	exact := func(v uint64) bool {
		got, ok := new(big.Rat).SetString(string(appendScaled(nil, v, 9)))
		return ok && got.Cmp(new(big.Rat).SetFrac(new(big.Int).SetUint64(v), big.NewInt(1e9))) == 0
	}
	if err := quick.Check(exact, nil); err != nil {
		t.Error(err)
	}
}

func TestAppendFloat(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0", 1: "1", -3: "-3", 0.25: "0.25", 1e15: "1000000000000000", 1e22: "1e+22", 1e-7: "1e-07",
		math.Inf(1): "+Inf", 9007199254740992: "9.007199254740992e+15",
	} {
		if got := string(appendFloat(nil, f)); got != want {
			t.Errorf("%g: %s: want %s", f, got, want)
		}
	}
	same := func(f float64) bool {
		got, err := strconv.ParseFloat(string(appendFloat(nil, f)), 64)
		return err == nil && got == f
	}
	if err := quick.Check(same, nil); err != nil {
		t.Error(err)
	}
	whole := func(i int64) bool { return same(float64(i)) }
	if err := quick.Check(whole, nil); err != nil {
		t.Error(err)
	}
}

func TestBound(t *testing.T) {
	for f, want := range map[float64]string{1: "1.0", 0.25: "0.25", 16 << 20: "1.6777216e+07", 86400: "86400.0", 1e6: "1e+06"} {
		if got := bound(f); got != want {
			t.Errorf("%g: %s: want %s", f, got, want)
		}
	}
}

func TestEscapeHelp(t *testing.T) {
	const in = "a \"b\" \\ c\nd"
	if got, want := escapeHelp(in, false), `a "b" \\ c\nd`; got != want {
		t.Errorf("text: %s: want %s", got, want)
	}
	if got, want := escapeHelp(in, true), `a \"b\" \\ c\nd`; got != want {
		t.Errorf("openmetrics: %s: want %s", got, want)
	}
}
