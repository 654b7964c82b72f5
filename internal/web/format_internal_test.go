package web

import "testing"

// What is rounded up to the next form is written in that.
func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0994: "0.099", 0.0996: "0.10", 5.8: "5.80", 9.994: "9.99", 9.996: "10.0", 99.96: "100", 1204: "1,204", -1204: "-1,204"} {
		if got := sig3(v); got != want {
			t.Errorf("sig3(%v) = %s, want %s", v, got, want)
		}
	}
	for v, want := range map[float64]string{0.34: "0.34 s", 0.9996: "1.0 s", 59.94: "59.9 s", 59.96: "1 m 00 s", 252: "4 m 12 s", 3599.6: "1 h 00 m", 7500: "2 h 05 m", -1: dash} {
		if got := seconds(v); got != want {
			t.Errorf("seconds(%v) = %s, want %s", v, got, want)
		}
	}
}
