package webtest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cimeter/cimeter"
)

// History is a fleet's builds of the last days: the named ones of this package,
// and n more.
func History(n int) []*cimeter.Record {
	rnd := rand.New(rand.NewPCG(1, 2))
	rs := []*cimeter.Record{Example(), OOM(), Incomplete(), Absent(), Single()}
	jobs := []struct {
		project, name string
		factor        float64
	}{{"group/app", "build-and-test", 1}, {"group/app", "e2e", 2.6}, {"group/app", "lint", 0.16}, {"group/site", "deploy", 0.3}, {"infra/terraform", "plan", 0.2}, {"data/etl", "nightly", 7}}
	for i := range n {
		j := jobs[rnd.IntN(len(jobs))]
		if i%3 == 0 {
			j = jobs[0]
		}
		at := Now.Add(-time.Duration(float64(i)*17+rnd.Float64()*10) * time.Minute).Add(-8 * time.Minute)
		r := Make(4230-i, at, j.factor*(0.85+0.3*rnd.Float64()))
		r.Project, r.Name = j.project, j.name
		r.Machine = fmt.Sprintf("ci-%d", 1+rnd.IntN(9))
		r.Runner = cimeter.Runner{ID: "s_" + r.Machine, Name: "docker-" + r.Machine[3:]}
		r.QueuedAt = r.StartedAt.Add(-time.Duration(rnd.ExpFloat64() * 9 * float64(time.Second)))
		switch rnd.IntN(12) {
		case 0:
			r.Result = "failed"
		case 1:
			r.Result = "canceled"
		}
		if i%4 == 1 {
			r.Ref, r.Event = fmt.Sprintf("feature/issue-%d", i), "merge_request_event"
		}
		if rnd.IntN(3) > 0 {
			r.Verdicts = nil
		}
		rs = append(rs, r)
	}
	return rs
}
