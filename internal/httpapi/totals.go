package httpapi

import (
	"fmt"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/wire"
)

// totals is store.Totals as JSON. Sums are of what builds know.
type totals struct {
	Builds              int64              `json:"builds"`
	Failed              int64              `json:"failed"`
	Canceled            int64              `json:"canceled"`
	OOM                 int64              `json:"oom"`
	WallSeconds         float64            `json:"wall_seconds"`
	CPUSeconds          float64            `json:"cpu_seconds"`
	CPUThrottledSeconds float64            `json:"cpu_throttled_seconds"`
	QueueSeconds        float64            `json:"queue_seconds"`
	Queued              int64              `json:"queued"` // builds whose queue time is known
	IOBytes             int64              `json:"io_bytes"`
	NetworkBytes        int64              `json:"network_bytes"`
	MemoryPeakBytes     cimeter.Opt[int64] `json:"memory_peak_bytes,omitzero"` // the largest
	LastEndedAt         time.Time          `json:"last_ended_at,omitzero"`
}

func newTotals(t store.Totals) totals {
	return totals{
		Builds: t.Builds, Failed: t.Failed, Canceled: t.Canceled, OOM: t.OOM, WallSeconds: t.WallSeconds, CPUSeconds: t.CPUSeconds,
		CPUThrottledSeconds: t.ThrottledSeconds, QueueSeconds: t.QueueSeconds, Queued: t.Queued, IOBytes: t.IOBytes,
		NetworkBytes: t.NetworkBytes, MemoryPeakBytes: t.MemoryPeakBytes, LastEndedAt: t.Last,
	}
}

type group struct {
	Project    string `json:"project,omitempty"`
	Name       string `json:"name,omitempty"`
	Stage      string `json:"stage,omitempty"`
	Machine    string `json:"machine,omitempty"`
	Runner     string `json:"runner,omitempty"`
	RunnerName string `json:"runner_name,omitempty"`
	totals
	Reports *report `json:"reports,omitempty"` // of machines
}

// report is what a machine's agent told last.
type report struct {
	SeenAt  time.Time  `json:"seen_at"`
	Away    bool       `json:"away"`
	Running int        `json:"running"`
	Host    *wire.Host `json:"host,omitempty"`
	Now     *HostRates `json:"now,omitempty"`
}

// reports are what the machines' agents told last, by name.
func (a *API) reports() map[string]*report {
	if a.o.Agents == nil {
		return nil
	}
	by := map[string]*report{}
	for _, g := range a.o.Agents() {
		if r := by[g.Machine]; r == nil || r.SeenAt.Before(g.SeenAt) {
			by[g.Machine] = &report{g.SeenAt, g.Away, len(g.Running), g.Host, g.Now}
		}
	}
	return by
}

// groups is GET /api/v1/projects and its like: totals of a range of time.
func (a *API) groups(q *question, by store.By, only []string) (any, error) {
	from, to, err := q.span()
	if err != nil {
		return nil, err
	}
	sort, err := q.choice("sort", sorts(store.SortCPU)...)
	if err != nil {
		return nil, err
	}
	limit, err := q.number("limit", 100, store.MaxGroups)
	if err != nil {
		return nil, err
	}
	query := store.GroupQuery{By: by, From: from, To: to, Sort: store.Sort(sort), Limit: limit}
	for _, name := range only {
		switch name {
		case "project":
			query.Project = q.values[name]
		case "name":
			query.Name = q.values[name]
		}
	}
	if query.Name != "" && query.Project == "" {
		return nil, badParameter("name", "want project too")
	}
	found, err := a.o.Query.Groups(q.ctx, query)
	if err != nil {
		return nil, err
	}
	answer := struct {
		From   time.Time `json:"from"`
		To     time.Time `json:"to"`
		Groups []group   `json:"groups"`
		More   bool      `json:"more"`
	}{found.From, found.To, make([]group, 0, len(found.Groups)), found.More}
	var reports map[string]*report
	if by == store.ByMachine {
		reports = a.reports()
	}
	for _, g := range found.Groups {
		answer.Groups = append(answer.Groups, group{g.Project, g.Name, g.Stage, g.Machine, g.Runner, g.RunnerName, newTotals(g.Totals), reports[g.Machine]})
	}
	return answer, nil
}

// sum is GET /api/v1/summary: the totals and the spread of what a filter finds.
func (a *API) sum(q *question) (any, error) {
	f, err := q.filter()
	if err != nil {
		return nil, err
	}
	s, err := a.o.Query.Sum(q.ctx, f)
	if err != nil {
		return nil, err
	}
	return struct {
		totals
		WallP50  cimeter.Opt[float64] `json:"wall_seconds_p50,omitzero"`
		WallP95  cimeter.Opt[float64] `json:"wall_seconds_p95,omitzero"`
		QueueP50 cimeter.Opt[float64] `json:"queue_seconds_p50,omitzero"`
		QueueP95 cimeter.Opt[float64] `json:"queue_seconds_p95,omitzero"`
		Partial  bool                 `json:"partial"`
	}{newTotals(s.Totals), s.WallP50, s.WallP95, s.QueueP50, s.QueueP95, s.Partial}, nil
}

type bucket struct {
	Start time.Time `json:"start"`
	totals
}

const maxBuckets = store.MaxGroups

// buckets is GET /api/v1/totals: totals over time.
func (a *API) buckets(q *question) (any, error) {
	from, to, err := q.span()
	if err != nil {
		return nil, err
	}
	width := 24 * time.Hour
	if v, ok := q.values["bucket"]; ok {
		if width, err = time.ParseDuration(v); err != nil || width < time.Hour || width > 30*24*time.Hour || width%time.Hour != 0 {
			return nil, badParameter("bucket", fmt.Sprintf("%q: want whole hours, 1h to 720h", display.Fit(v, 32, "…")))
		}
	}
	if to.Sub(from)/width >= maxBuckets {
		return nil, badParameter("bucket", fmt.Sprintf("want at most %d buckets between from and to", maxBuckets))
	}
	found, err := a.o.Query.Buckets(q.ctx, store.BucketQuery{
		Project: q.values["project"], Name: q.values["name"], Machine: q.values["machine"], Runner: q.values["runner"], From: from, To: to, Bucket: width,
	})
	if err != nil {
		return nil, err
	}
	all := make([]bucket, 0, len(found))
	for _, b := range found {
		all = append(all, bucket{b.Start, newTotals(b.Totals)})
	}
	return map[string]any{"bucket_seconds": int64(width.Seconds()), "buckets": all}, nil
}
