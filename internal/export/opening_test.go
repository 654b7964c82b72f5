package export_test

import (
	"slices"
	"testing"

	"github.com/cimeter/cimeter/internal/export"
	"github.com/cimeter/cimeter/internal/series"
)

func TestLabels(t *testing.T) {
	got := export.Labels(map[string]string{"job": "mine", "zone": "a", "gone": ""}, map[string]string{"job": "cimeter", "instance": "ci-7", "gone": "x", "none": ""})
	want := []series.Label{{Name: "instance", Value: "ci-7"}, {Name: "job", Value: "mine"}, {Name: "zone", Value: "a"}}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestOpening_zero(t *testing.T) {
	if _, err := (export.Opening{}).Open(export.Whose{}); err == nil {
		t.Error("an output that nothing made opens")
	}
}
