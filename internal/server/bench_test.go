package server_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/push"
	"github.com/cimeter/cimeter/internal/server"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/wire"
)

// large is build n with ten stages and a trace.
func large(n int) *cimeter.Record {
	r := record(n)
	r.Trace = &cimeter.Trace{StepSeconds: 1}
	for i := range 120 {
		r.Trace.CPUMillicores = append(r.Trace.CPUMillicores, cimeter.Some(int64(i*n%4000)))
		r.Trace.MemoryKiB = append(r.Trace.MemoryKiB, cimeter.Some(int64(i*n%400000)))
	}
	stage := r.Stages[0]
	r.Stages = nil
	for i := range 10 {
		stage.Name = []string{"get_sources", "step_script", "archive_cache", "a", "b", "c", "d", "e", "f", "g"}[i]
		r.Stages = append(r.Stages, stage)
	}
	return r
}

func openSQLite(b *testing.B) *sqlite.Store {
	b.Helper()
	kept, err := sqlite.Open(b.Context(), sqlite.Options{Path: filepath.Join(b.TempDir(), "cimeter.db"), Migrate: true})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { kept.Close() })
	return kept
}

// BenchmarkIngest sends batches of 20 records with ten stages and a trace over
// HTTP, four senders at once, into SQLite, and compares with the store alone.
func BenchmarkIngest(b *testing.B) {
	const batch = 20
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	kept := openSQLite(b)
	role := server.New(server.Options{Store: kept, Tally: tally.New(tally.Options{})}, slog.New(slog.DiscardHandler))
	go role.Run(ctx)
	web := httptest.NewServer(httpapi.New(httpapi.Options{Ingest: role}))
	defer web.Close()
	way, err := push.NewSender(push.SenderOptions{URL: web.URL})
	if err != nil {
		b.Fatal(err)
	}
	var next atomic.Int64
	b.SetParallelism(2)
	b.ResetTimer()
	began := time.Now()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			first := int(next.Add(batch))
			lines := make([][]byte, batch)
			for i := range lines {
				if lines[i], err = json.Marshal(large(first + i)); err != nil {
					b.Error(err)
				}
			}
			results, err := way.Records(ctx, lines)
			if err != nil || results[0].Status != wire.Stored {
				b.Error(results, err)
			}
		}
	})
	through := float64(b.N*batch) / time.Since(began).Seconds()
	b.StopTimer()

	bare := openSQLite(b)
	began = time.Now()
	for n := range b.N {
		var puts []store.Put
		for i := range batch {
			puts = append(puts, store.Put{Record: large(n*batch + i), ReceivedAt: began})
		}
		if _, err := bare.Put(ctx, puts); err != nil {
			b.Fatal(err)
		}
	}
	alone := float64(b.N*batch) / time.Since(began).Seconds()
	b.ReportMetric(through, "records/s")
	b.ReportMetric(through/alone, "of-bare")
}

// BenchmarkHeartbeat takes heartbeats of 2,000 agents with five builds each.
func BenchmarkHeartbeat(b *testing.B) {
	role := server.New(server.Options{Store: &memory{}, Tally: tally.New(tally.Options{})}, slog.New(slog.DiscardHandler))
	api := httpapi.New(httpapi.Options{Ingest: role, Agents: role.Agents})
	web := httptest.NewServer(api)
	defer web.Close()
	way, err := push.NewSender(push.SenderOptions{URL: web.URL})
	if err != nil {
		b.Fatal(err)
	}
	var running []wire.Running
	for n := range 5 {
		running = append(running, wire.Running{Key: key(n), Project: "group/app", CPUSeconds: cimeter.Some(1.5)})
	}
	for n := 0; b.Loop(); n++ {
		h := wire.Heartbeat{Agent: key(n % 2000), Machine: "ci", IntervalSeconds: 5, Running: running}
		if err := way.Heartbeat(b.Context(), h); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRunning asks what runs on 2,000 machines, of which each has told of
// five builds since the time before, and of which none has.
func BenchmarkRunning(b *testing.B) {
	const agents = 2000
	for _, changed := range []int{agents, agents / 10, 0} {
		b.Run(strconv.Itoa(changed)+" told", func(b *testing.B) {
			now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
			role := server.New(server.Options{Store: &memory{}, Tally: tally.New(tally.Options{}), Now: func() time.Time { return now }}, slog.New(slog.DiscardHandler))
			api := httpapi.New(httpapi.Options{Ingest: role, Agents: role.Agents})
			beat := 0.0
			tell := func(agents int) {
				beat++
				for n := range agents {
					h := wire.Heartbeat{Agent: "agent-" + strconv.Itoa(n), Machine: "ci-" + strconv.Itoa(n), IntervalSeconds: 5}
					for i := range 5 {
						h.Running = append(h.Running, wire.Running{Key: key(n*10 + i), CI: "gitlab", Project: "group/app", Number: "100007", Name: "test", Stage: "step_script",
							Runner: cimeter.Runner{ID: "s_1", ShortToken: "Zx8", Name: "docker"}, URL: "https://gitlab.example.com/group/app/-/jobs/100007", StartedAt: now,
							CPUSeconds: cimeter.Some(1.5 * beat), MemoryBytes: cimeter.Some(uint64(1 << 30)), IOBytes: &cimeter.ReadWrite[uint64]{Read: uint64(beat) << 20, Write: 7},
							NetworkBytes: &cimeter.ReceiveTransmit[uint64]{Receive: uint64(beat) << 18, Transmit: 9}, Limits: &cimeter.Limits{CPUCores: cimeter.Some(2.0)}})
					}
					role.Heartbeat(h)
				}
				now = now.Add(5 * time.Second)
			}
			tell(agents)
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				tell(changed)
				b.StartTimer()
				w := httptest.NewRecorder()
				api.ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/running", nil))
				if changed > 0 && w.Body.Len() < agents*100 {
					b.Fatal(w.Body.Len())
				}
			}
		})
	}
}
