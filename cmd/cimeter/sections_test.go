package main

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/refine"
	"github.com/cimeter/cimeter/internal/section"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
)

type fixedLog struct {
	log   section.Log
	asked int
}

func (f *fixedLog) Sections(_ context.Context, project, _ string) (section.Log, error) {
	if f.asked++; project != "group/app" {
		return section.Log{}, cimeter.ErrNotFound
	}
	return f.log, nil
}

// A stored build is divided by its log, which is read once; its trace comes from the store.
func TestJobSections(t *testing.T) {
	kept, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "b.db"), Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	at := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	put := func(key, project, server string) {
		r := &cimeter.Record{Schema: 1, Complete: true, Gaps: []cimeter.Gap{}, StartedAt: at, EndedAt: at.Add(10 * time.Second),
			Build:  cimeter.Build{Key: key, CI: "gitlab", Server: server, Project: project, Name: "test", Attempt: 1},
			Trace:  &cimeter.Trace{StepSeconds: 5, CPUMillicores: []cimeter.Opt[int64]{cimeter.Some[int64](0), cimeter.Some[int64](1000)}},
			Stages: []cimeter.Stage{{Name: "step_script", Attempt: 1, Boundary: cimeter.BoundaryContainer, StartedAt: at, EndedAt: at.Add(10 * time.Second), Usage: cimeter.Usage{WallSeconds: 10, CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(5.0)}}}}}
		if _, err := kept.Put(t.Context(), []store.Put{{Record: r, ReceivedAt: at}}); err != nil {
			t.Fatal(err)
		}
	}
	put("gitlab/h/1", "group/app", "h")
	put("gitlab/h/2", "other/app", "h")
	put("gitlab/elsewhere/1", "group/app", "elsewhere")
	log := &fixedLog{log: section.Log{Stamped: true, Sections: []section.Section{{Name: "build", From: at.Add(2 * time.Second), To: at.Add(6 * time.Second)}}}}
	s := &jobSections{kept: kept, readers: map[string]refine.Reader{readerKey("gitlab", "h"): log}, log: slog.New(slog.DiscardHandler)}
	record, err := kept.Get(t.Context(), "gitlab/h/1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Kept(t.Context(), record); !errors.Is(err, cimeter.ErrNotFound) || log.asked != 0 {
		t.Errorf("kept before it was read: %v, %d asked", err, log.asked)
	}
	divided := func(p section.Parts, err error) {
		t.Helper()
		if err != nil || len(p.Parts) != 3 || p.Parts[1].Name != "build" || p.Parts[1].Usage.CPUSeconds.Total.Value != 1 || p.Parts[2].Usage.CPUSeconds.Total.Value != 4 {
			t.Errorf("%+v, %v", p, err)
		}
	}
	for range 2 {
		divided(s.Parts(t.Context(), "gitlab/h/1"))
	}
	if log.asked != 1 {
		t.Errorf("the log was read %d times", log.asked)
	}
	for _, key := range []string{"gitlab/h/2", "gitlab/elsewhere/1", "gitlab/h/9"} {
		if _, err := s.Parts(t.Context(), key); !errors.Is(err, cimeter.ErrNotFound) {
			t.Errorf("%s: %v", key, err)
		}
	}
	// Another process has what was kept, with no CI server to ask.
	alone := &jobSections{kept: kept, log: s.log}
	divided(alone.Parts(t.Context(), "gitlab/h/1"))
	divided(alone.Kept(t.Context(), record))
}
