package webtest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
)

// Queue is what two CI servers tell: one answers, with builds in every state,
// the other does not since four minutes.
func Queue() queue.State {
	rnd := rand.New(rand.NewPCG(7, 7))
	st := queue.State{At: Now}
	whys := []queue.Why{queue.WhyNoSlot, queue.WhyNoSlot, queue.WhyNoSlot, queue.WhyNoWorker, queue.WhyUnknown}
	for i := range 14 {
		b := queued("gitlab.example.com", 5000+i, cimeter.JobWaiting)
		b.Waited = cimeter.Some(900 - 61.3*float64(i))
		b.Why, b.Tags = whys[i%len(whys)], [][]string{{"docker"}, {"docker", "large"}, {}, {"macos"}, nil}[i%len(whys)]
		if b.Why == queue.WhyNoSlot {
			b.Start = cimeter.Some(queue.Estimate{Seconds: 95 + 20*float64(i), Low: 40, High: 260 + 30*float64(i), Samples: 84})
		}
		st.Builds = append(st.Builds, b)
	}
	for i := range 3 {
		b := queued("drone.example.com", 5100+i, cimeter.JobWaiting)
		b.Waited, b.Tags = cimeter.Some(300-40*float64(i)), []string{"platform=linux/arm64"}
		st.Builds = append(st.Builds, b)
	}
	for i := range 2 {
		st.Builds = append(st.Builds, queued("gitlab.example.com", 5200+i, cimeter.JobBlocked))
	}
	for i, why := range []queue.Why{queue.WhyUnknown, queue.WhyPreparing, queue.WhyStarting, queue.WhyUnknown} {
		b := queued("gitlab.example.com", 5300+i, cimeter.JobRunning)
		b.Waited, b.Ran, b.Why, b.Tags = cimeter.Some(12.5*float64(i)), cimeter.Some(400-90*float64(i)), why, []string{"docker"}
		if b.Metered = why != queue.WhyStarting; b.Metered {
			b.Machine, b.Stage = fmt.Sprintf("ci-%d", 1+i), "step_script"
		}
		b.Worker = fmt.Sprint(41 + i)
		st.Builds = append(st.Builds, b)
	}
	states := []cimeter.WorkerState{cimeter.WorkerBusy, cimeter.WorkerBusy, cimeter.WorkerIdle, cimeter.WorkerOffline, cimeter.WorkerDraining, cimeter.WorkerUnknown}
	for i, state := range states {
		w := queue.Worker{Worker: cimeter.Worker{CI: "gitlab", Server: "gitlab.example.com", ID: fmt.Sprint(41 + i), Name: fmt.Sprintf("docker-%d", 1+i), State: state, Tags: []string{"docker"},
			ContactedAt: Now.Add(-time.Duration(3+i*40) * time.Second), Runner: cimeter.Runner{ID: fmt.Sprintf("s_ci-%d", 1+i)}}, On: "gitlab.example.com"}
		if state == cimeter.WorkerBusy {
			w.Slots, w.Running, w.Builds = cimeter.Some(2), cimeter.Some(1+i), []string{st.Builds[19+i].Key, "gitlab/gitlab.example.com/1"}[:1+i]
		} else if state == cimeter.WorkerIdle {
			w.Slots, w.Running = cimeter.Some(2), cimeter.Some(0)
		}
		st.Workers = append(st.Workers, w)
	}
	st.Workers = append(st.Workers, queue.Worker{Worker: cimeter.Worker{CI: "drone", Server: "drone.example.com", ID: "arm-1", Name: "arm-1", State: cimeter.WorkerBusy}, On: "drone.example.com", Stale: true})
	st.Servers = []queue.Server{
		{Name: "gitlab.example.com", CI: "gitlab", HeardAt: Now, AskedAt: Now.Add(-4 * time.Second), AgeSeconds: cimeter.Some(4.0), Waiting: cimeter.Some(14), Blocked: cimeter.Some(2), Running: cimeter.Some(4),
			Workers: cimeter.Some(queue.WorkerCount{Idle: 1, Busy: 2, Offline: 1, Draining: 1, Unknown: 1}), Slots: cimeter.Some(6),
			LongestDay: queue.Longest{Key: "gitlab/gitlab.example.com/4001", Name: "e2e", Project: "group/app", Seconds: 1312, At: Now.Add(-5 * time.Hour)}},
		{Name: "drone.example.com", CI: "drone", HeardAt: Now.Add(-4 * time.Minute), AskedAt: Now.Add(-4 * time.Minute), AgeSeconds: cimeter.Some(240.0), Stale: true, Failure: "drone.example.com answers 503", Reason: "status",
			Status: 503, FailsAt: Now.Add(-4 * time.Minute), Waiting: cimeter.Some(3), Blocked: cimeter.Some(0), Running: cimeter.Some(0), Workers: cimeter.Some(queue.WorkerCount{Busy: 1})},
	}
	for j := range st.Servers {
		for i := range 1440 {
			day := 0.5 + 0.5*math.Sin(float64(i)/229+float64(j))
			p := queue.Point{At: Now.Add(-time.Duration(1440-i) * time.Minute).Unix(), Waiting: float32(14*day*day + rnd.Float64()), Running: float32(6 * day), Slots: 6, P50: float32(40 + 200*day), P95: float32(90 + 700*day)}
			if p.Waiting < 0.6 {
				p.P50, p.P95 = float32(math.NaN()), float32(math.NaN())
			}
			if j == 1 {
				p.Slots = float32(math.NaN())
			}
			if j == 1 && i > 1436 || i > 400 && i < 430 {
				continue // not seen
			}
			st.Servers[j].History = append(st.Servers[j].History, p)
		}
		for i := range 6 * 24 * 7 {
			busy := 0.5 + 0.5*math.Sin(float64(i)/23+float64(j))
			st.Servers[j].Week = append(st.Servers[j].Week, queue.Point{At: Now.Add(-time.Duration(6*24*7-i)*10*time.Minute - 3*time.Minute).Unix(),
				Waiting: float32(20 * busy), Running: float32(6 * busy), Slots: 6, P50: float32(60 * busy), P95: float32(900 * busy)})
		}
	}
	return st
}

// NameQueue gives all that a queue holds s for every name; Key of its builds stays
// one of its server.
func NameQueue(st *queue.State, s string) {
	for i := range st.Servers {
		v := &st.Servers[i]
		v.Name, v.CI, v.Failure = s, s, s
		v.LongestDay.Name, v.LongestDay.Project, v.LongestDay.Key = s, s, s
	}
	for i := range st.Builds {
		b := &st.Builds[i]
		b.On, b.Project, b.Name, b.Number, b.URL, b.Machine, b.Worker, b.Stage, b.Tags = s, s, s, s, s, s, s, s, []string{s, s}
		b.Key = cimeter.BuildKey("gitlab", s, fmt.Sprint(i))
		b.Why = []queue.Why{queue.Why(s), b.Why}[i%2]
	}
	for i := range st.Workers {
		w := &st.Workers[i]
		w.On, w.ID, w.Name, w.Tags, w.Runner.ID, w.State = s, s, s, []string{s}, s, cimeter.WorkerState(s)
		w.Builds = append(w.Builds, s)
	}
}

func queued(server string, n int, status cimeter.JobStatus) queue.Build {
	ci := "gitlab"
	if server == "drone.example.com" {
		ci = "drone"
	}
	names := []string{"build-and-test", "e2e", "lint", "deploy"}
	b := queue.Build{On: server, Job: cimeter.Job{Status: status, Build: cimeter.Build{Key: cimeter.BuildKey(ci, server, fmt.Sprint(n)), CI: ci, Server: server, Project: "group/app",
		Name: names[n%len(names)], Number: fmt.Sprint(n), URL: "https://" + server + "/jobs/" + fmt.Sprint(n)}}}
	return b
}
