package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/section"
)

// sectionReader reads the sections of a job's log. See gitlabapi.Client.
type sectionReader interface {
	Sections(ctx context.Context, project, key string) (section.Log, error)
}

// maxLogs bounds the sections that are kept: some 2 KiB each.
const maxLogs = 1000

// jobSections divides the stages of builds by the sections of their logs. A log is
// read when somebody wants to see it, and its names and times are kept for the next.
type jobSections struct {
	kept    builds
	readers map[string]sectionReader // by CI and server

	mu   sync.Mutex
	logs map[string]section.Log // by key of a build, which is over
}

// newJobSections returns nil where no CI server has such logs.
func newJobSections(kept builds, readers map[string]sectionReader) *jobSections {
	if len(readers) == 0 {
		return nil
	}
	return &jobSections{kept: kept, readers: readers, logs: map[string]section.Log{}}
}

func readerKey(ci, server string) string { return ci + "/" + server }

// parts is httpapi.Sections.
func (s *jobSections) parts(ctx context.Context, key string) (section.Parts, error) {
	record, err := s.kept.Get(ctx, key)
	if err != nil {
		return section.Parts{}, err
	}
	reader := s.readers[readerKey(record.CI, record.Server)]
	if reader == nil {
		return section.Parts{}, fmt.Errorf("sections of %s: no CI server tells them: %w", key, cimeter.ErrNotFound)
	}
	s.mu.Lock()
	log, ok := s.logs[record.Key]
	s.mu.Unlock()
	if !ok {
		if log, err = reader.Sections(ctx, record.Project, record.Key); err != nil {
			return section.Parts{}, err
		}
		s.mu.Lock()
		if len(s.logs) >= maxLogs {
			clear(s.logs) // they are read again
		}
		s.logs[record.Key] = log
		s.mu.Unlock()
	}
	whole := *record
	if whole.Trace == nil {
		if whole.Trace, err = s.kept.Trace(ctx, key); err != nil {
			whole.Trace = nil // by time alone
		}
	}
	parts, ok := section.Split(&whole, log)
	if !ok {
		return section.Parts{}, fmt.Errorf("sections of %s: none divides a stage: %w", key, cimeter.ErrNotFound)
	}
	return parts, nil
}
