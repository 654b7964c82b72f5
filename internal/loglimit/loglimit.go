// Package loglimit keeps one fault that repeats from filling the log.
//
// It owns a [slog.Handler] that passes the first record of a kind, drops its
// repeats within a window, and says with the next one how many it dropped. It
// reads no clock (a record brings its time) and starts no goroutine. Start with
// [New]. A Handler and those derived from it are safe for concurrent use.
package loglimit

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// maxKinds bounds the kinds that are remembered. A kind is a phrase in the
// source and the attributes of its logger, of which a program has dozens; what
// is over the bound is passed on without a limit.
const maxKinds = 256

// Handler passes records on to another handler, less their repeats. Records are
// of one kind when level, message and the attributes of the logger are the same;
// of the record's own attributes only those count that [New] is told of, since
// messages are fixed phrases and attributes are what varies. Records below
// [slog.LevelInfo] always pass: who asks for them wants all.
type Handler struct {
	next   slog.Handler
	logger string // what With and WithGroup added, as part of the kind
	shared *shared
}

type shared struct {
	window  time.Duration
	subject []string // keys of attributes that say what a record is about

	mu      sync.Mutex
	kinds   map[kind]*repeats
	dropped uint64
}

type kind struct {
	level                  slog.Level
	logger, message, about string
}

type repeats struct {
	since   time.Time // time of the record that passed
	dropped int       // since then
	report  slog.Handler
	pc      uintptr     // where it was logged
	attrs   []slog.Attr // what it was about
}

// New returns a handler that passes at most one record of a kind to next within
// window. Records whose attributes of the keys subject differ are of different
// kinds: of two servers that do not answer, both are told. They should be names
// of what there is little of.
func New(next slog.Handler, window time.Duration, subject ...string) *Handler {
	return &Handler{next: next, shared: &shared{window: window, subject: subject, kinds: map[kind]*repeats{}}}
}

// Enabled implements [slog.Handler].
func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// WithAttrs implements [slog.Handler].
func (h *Handler) WithAttrs(as []slog.Attr) slog.Handler {
	d := *h
	d.next = h.next.WithAttrs(as)
	for _, a := range as {
		d.logger += "\x00" + a.String()
	}
	return &d
}

// WithGroup implements [slog.Handler].
func (h *Handler) WithGroup(name string) slog.Handler {
	d := *h
	d.next = h.next.WithGroup(name)
	d.logger += "\x01" + name
	return &d
}

// Handle implements [slog.Handler]. The first record after repeats were dropped
// has their number as its attribute "dropped".
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo || r.Time.IsZero() {
		return h.next.Handle(ctx, r)
	}
	about := h.shared.about(r)
	k := kind{r.Level, h.logger, r.Message, ""}
	for _, a := range about {
		k.about += "\x00" + a.String()
	}
	pass, dropped := h.shared.admit(k, r.Time, repeats{report: h.next, pc: r.PC, attrs: about})
	if !pass {
		return nil
	}
	if dropped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("dropped", dropped))
	}
	return h.next.Handle(ctx, r)
}

// about returns the attributes that say what a record is about.
func (s *shared) about(r slog.Record) (about []slog.Attr) {
	if len(s.subject) == 0 {
		return nil
	}
	r.Attrs(func(a slog.Attr) bool {
		if slices.Contains(s.subject, a.Key) {
			about = append(about, a)
		}
		return true
	})
	return about
}

// admit reports whether a record of kind k passes at now, and how many were
// dropped before it. first says how drops are told at the end.
func (s *shared) admit(k kind, now time.Time, first repeats) (pass bool, dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, ok := s.kinds[k]; ok {
		if age := now.Sub(r.since); age >= 0 && age < s.window {
			r.dropped++
			s.dropped++
			return false, 0
		}
		dropped = r.dropped
		r.since, r.dropped = now, 0
		return true, dropped
	}
	if len(s.kinds) >= maxKinds {
		for old, r := range s.kinds {
			if r.dropped == 0 && now.Sub(r.since) >= s.window {
				delete(s.kinds, old)
			}
		}
	}
	if len(s.kinds) < maxKinds {
		first.since = now
		s.kinds[k] = &first
	}
	return true, 0
}

// Flush writes one record for each kind whose drops no later record has told
// of. Call it at the end of the program.
func (h *Handler) Flush(ctx context.Context, now time.Time) error {
	type last struct {
		kind
		repeats
	}
	var lasts []last
	h.shared.mu.Lock()
	for k, r := range h.shared.kinds {
		if r.dropped > 0 {
			lasts = append(lasts, last{k, *r})
			r.dropped = 0
		}
	}
	h.shared.mu.Unlock()
	slices.SortFunc(lasts, func(a, b last) int { return a.since.Compare(b.since) })
	for _, l := range lasts {
		r := slog.NewRecord(now, l.level, l.message, l.pc)
		r.AddAttrs(l.attrs...)
		r.AddAttrs(slog.Int("dropped", l.dropped))
		if err := l.report.Handle(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// Dropped returns how many records were dropped since New.
func (h *Handler) Dropped() uint64 {
	h.shared.mu.Lock()
	defer h.shared.mu.Unlock()
	return h.shared.dropped
}
