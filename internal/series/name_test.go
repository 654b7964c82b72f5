package series_test

import (
	"testing"

	"github.com/cimeter/cimeter/internal/series"
)

func TestMetricName(t *testing.T) {
	for in, want := range map[string][2]string{
		"": {"_", "_"}, "a_b9": {"a_b9", "a_b9"}, "9lives": {"_lives", "_lives"}, "job:x:rate": {"job:x:rate", "job_x_rate"},
		":a": {":a", "_a"}, "a.b-c d": {"a_b_c_d", "a_b_c_d"}, "ä": {"__", "__"}, "\xff1": {"_1", "_1"},
	} {
		if got := [2]string{series.MetricName(in), series.LabelName(in)}; got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
