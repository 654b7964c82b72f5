package web_test

import (
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/webtest"
)

// What a pod asked for is shown against what was used, and nothing where nothing was
// asked for or is not known.
func TestBuild_requested(t *testing.T) {
	r := webtest.Example()
	r.Limits = &cimeter.Limits{Requested: cimeter.Requests{CPUCores: cimeter.Some(4.0), MemoryBytes: cimeter.Some(uint64(8 << 30))}}
	r.Usage.CPUCores = &cimeter.Stat{Avg: 1}
	r.Usage.MemoryBytes = &cimeter.MemoryStat{Peak: cimeter.Some(uint64(2 << 30))}
	_, body := get(t, pages(t, &webtest.Memory{Records: []*cimeter.Record{r}}), key(r))
	wants(t, body, "requested", "4.00 cores (25 % used), 8.00 GiB (25 % at its peak)")

	r.Usage.CPUCores, r.Usage.MemoryBytes = nil, nil
	_, body = get(t, pages(t, &webtest.Memory{Records: []*cimeter.Record{r}}), key(r))
	wants(t, body, "4.00 cores, 8.00 GiB")

	r.Limits.Requested = cimeter.Requests{}
	_, body = get(t, pages(t, &webtest.Memory{Records: []*cimeter.Record{r}}), key(r))
	lacks(t, body, "requested")
}
