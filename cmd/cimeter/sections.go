package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/refine"
	"github.com/cimeter/cimeter/internal/section"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/tally"
)

// jobSections divides the stages of builds by the sections of their logs. Those that
// are kept beside a build are taken; else, when somebody wants to see them, the log is
// read, and its names and times are kept.
type jobSections struct {
	kept    sectionStore
	readers map[string]refine.Reader // by CI and server
	log     *slog.Logger
}

// sectionStore is what is known of builds, and what stands beside them.
type sectionStore interface {
	Get(ctx context.Context, key string) (*cimeter.Record, error)
	Trace(ctx context.Context, key string) (*cimeter.Trace, error)
	SectionsOf(ctx context.Context, keys []string) (map[string][]byte, error)
	PutSections(ctx context.Context, all []store.Sections) error
}

func readerKey(ci, server string) string { return ci + "/" + server }

// Parts implements httpapi.Sections.
func (s *jobSections) Parts(ctx context.Context, key string) (section.Parts, error) {
	record, err := s.kept.Get(ctx, key)
	if err != nil {
		return section.Parts{}, err
	}
	if record.Trace == nil {
		if record.Trace, err = s.kept.Trace(ctx, key); err != nil {
			record.Trace = nil // by time alone
		}
	}
	return s.divide(ctx, record, false)
}

// Kept implements httpapi.Sections.
func (s *jobSections) Kept(ctx context.Context, r *cimeter.Record) (section.Parts, error) {
	return s.divide(ctx, r, true)
}

// divide is web.Sections: with keptOnly no CI server is asked.
func (s *jobSections) divide(ctx context.Context, r *cimeter.Record, keptOnly bool) (section.Parts, error) {
	found, err := s.kept.SectionsOf(ctx, []string{r.Key})
	if err != nil {
		return section.Parts{}, err
	}
	var log section.Log
	if doc, ok := found[r.Key]; ok {
		if err := json.Unmarshal(doc, &log); err != nil {
			return section.Parts{}, fmt.Errorf("sections kept of %s: damaged: %w", r.Key, err)
		}
	} else if log, err = s.read(ctx, r, keptOnly); err != nil {
		return section.Parts{}, err
	}
	parts, ok := section.Split(r, log)
	if !ok {
		return section.Parts{}, fmt.Errorf("sections of %s: none divides a stage: %w", r.Key, cimeter.ErrNotFound)
	}
	return parts, nil
}

// read reads a log and keeps its sections.
func (s *jobSections) read(ctx context.Context, r *cimeter.Record, keptOnly bool) (section.Log, error) {
	reader := s.readers[readerKey(r.CI, r.Server)]
	if reader == nil || keptOnly {
		return section.Log{}, fmt.Errorf("sections of %s: none are kept, and no CI server is asked: %w", r.Key, cimeter.ErrNotFound)
	}
	log, err := reader.Sections(ctx, r.Project, r.Key)
	if err != nil {
		return section.Log{}, err
	}
	doc, err := json.Marshal(log)
	if err == nil {
		err = s.kept.PutSections(ctx, []store.Sections{{Key: r.Key, EndedAt: r.EndedAt, JSON: doc}})
	}
	if err != nil {
		s.log.Warn("sections of a log are not kept", "build", r.Key, "err", err)
	}
	return log, nil
}

// newRefiner makes what reads logs by itself; nil: no settings ask for it.
func newRefiner(conf []config.CIServer, made []ciServer, kept builds, counts *tally.Table, log *slog.Logger) *refine.Refiner {
	o := refine.Options{Store: kept, Tally: counts, Leader: kept}
	for i, c := range conf {
		reader, ok := made[i].source.(refine.Reader)
		if !ok || len(c.Sections) == 0 {
			continue
		}
		o.Servers = append(o.Servers, refine.Server{
			Name: c.Name, CI: c.Kind, Host: ci.ServerOf(c.URL), Reader: reader, Requests: c.Logs,
			Wanted: func(project string) bool { return anyGlob(c.Sections, project) },
		})
		log.Info("logs are read for their sections", "server", c.Name, "projects", c.Sections)
	}
	if len(o.Servers) == 0 {
		return nil
	}
	return refine.New(o, log)
}
