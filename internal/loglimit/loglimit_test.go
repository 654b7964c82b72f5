package loglimit_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"

	"encoding/json"

	"github.com/cimeter/cimeter/internal/loglimit"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func text(w *bytes.Buffer) slog.Handler {
	return slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
}

func log(t *testing.T, h slog.Handler, at time.Duration, level slog.Level, message string, args ...any) {
	t.Helper()
	r := slog.NewRecord(start.Add(at), level, message, 0)
	r.Add(args...)
	if err := h.Handle(context.Background(), r); err != nil {
		t.Fatal(err)
	}
}

func TestHandler_DropsRepeatsAndCountsThem(t *testing.T) {
	var out bytes.Buffer
	h := loglimit.New(text(&out), time.Minute)
	for i := range 60 {
		log(t, h, time.Duration(i)*time.Second, slog.LevelWarn, "daemon away", "try", i)
	}
	log(t, h, 5*time.Second, slog.LevelWarn, "disk full")
	log(t, h, 6*time.Second, slog.LevelError, "daemon away")
	log(t, h, time.Minute, slog.LevelWarn, "daemon away", "try", 60)
	log(t, h, 3*time.Minute, slog.LevelWarn, "daemon away", "try", 61)
	want := `level=WARN msg="daemon away" try=0
level=WARN msg="disk full"
level=ERROR msg="daemon away"
level=WARN msg="daemon away" try=60 dropped=59
level=WARN msg="daemon away" try=61
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	if h.Dropped() != 59 {
		t.Errorf("dropped: got %d, want 59", h.Dropped())
	}
}

func TestHandler_TellsLoggersApart(t *testing.T) {
	var out bytes.Buffer
	h := loglimit.New(text(&out), time.Minute)
	a := h.WithAttrs([]slog.Attr{slog.String("runner", "a")})
	b := h.WithAttrs([]slog.Attr{slog.String("runner", "b")})
	g := h.WithGroup("g")
	for range 3 {
		for _, l := range []slog.Handler{h, a, b, g} {
			log(t, l, 0, slog.LevelInfo, "x", "k", 1)
		}
	}
	want := "level=INFO msg=x k=1\nlevel=INFO msg=x runner=a k=1\nlevel=INFO msg=x runner=b k=1\nlevel=INFO msg=x g.k=1\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

// What a record is about tells it from others of the same message, and is told
// with the drops at the end, beside the line of the source.
func TestHandler_TellsSubjectsApart(t *testing.T) {
	var out bytes.Buffer
	h := loglimit.New(slog.NewTextHandler(&out, &slog.HandlerOptions{AddSource: true, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch {
		case a.Key == slog.TimeKey:
			return slog.Attr{}
		case a.Key == slog.SourceKey && a.Value.Any().(*slog.Source).Line == 0:
			return slog.String(slog.SourceKey, "nowhere")
		case a.Key == slog.SourceKey:
			return slog.String(slog.SourceKey, "here")
		}
		return a
	}}), time.Minute, "server")
	l := slog.New(h)
	for try := range 3 {
		for _, server := range []string{"a", "b"} {
			l.Warn("told nothing", "server", server, "try", try)
		}
	}
	if err := h.Flush(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	want := `level=WARN source=here msg="told nothing" server=a try=0
level=WARN source=here msg="told nothing" server=b try=0
level=WARN source=here msg="told nothing" server=a dropped=2
level=WARN source=here msg="told nothing" server=b dropped=2
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestHandler_PassesDebugAndClockSteps(t *testing.T) {
	var out bytes.Buffer
	h := loglimit.New(text(&out), time.Minute)
	log(t, h, 0, slog.LevelDebug, "d")
	log(t, h, 0, slog.LevelDebug, "d")
	log(t, h, time.Hour, slog.LevelInfo, "i")
	log(t, h, 0, slog.LevelInfo, "i") // the clock was set back: not a repeat, or it would be silent for an hour
	if got := strings.Count(out.String(), "\n"); got != 4 {
		t.Errorf("got %d lines, want 4:\n%s", got, out.String())
	}
}

func TestHandler_Flush(t *testing.T) {
	var out bytes.Buffer
	h := loglimit.New(text(&out), time.Minute)
	d := h.WithAttrs([]slog.Attr{slog.String("component", "agent")})
	for range 4 {
		log(t, d, 0, slog.LevelWarn, "x")
	}
	log(t, h, 0, slog.LevelWarn, "once")
	out.Reset()
	for range 2 { // the second time there is nothing left to tell
		if err := h.Flush(context.Background(), start); err != nil {
			t.Fatal(err)
		}
	}
	if want := "level=WARN msg=x component=agent dropped=3\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestHandler_IsBounded(t *testing.T) {
	var out bytes.Buffer
	h := loglimit.New(text(&out), time.Minute)
	for i := range 1000 {
		log(t, h, 0, slog.LevelWarn, fmt.Sprint("m", i))
	}
	log(t, h, 0, slog.LevelWarn, "m0")   // remembered
	log(t, h, 0, slog.LevelWarn, "m999") // over the bound: passes
	if got := strings.Count(out.String(), "\n"); got != 1001 {
		t.Errorf("got %d lines, want 1001", got)
	}
	// Kinds whose window is over make room.
	log(t, h, time.Hour, slog.LevelWarn, "new")
	log(t, h, time.Hour, slog.LevelWarn, "new")
	if got := strings.Count(out.String(), "msg=new"); got != 1 {
		t.Errorf("after an hour: got %d lines, want 1", got)
	}
}

func TestHandler_Concurrent(t *testing.T) {
	var out bytes.Buffer
	h := loglimit.New(text(&out), time.Hour)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				r := slog.NewRecord(start, slog.LevelInfo, "x", 0)
				_ = h.Handle(context.Background(), r)
			}
		})
	}
	wg.Wait()
	if got := strings.Count(out.String(), "\n"); got != 1 || h.Dropped() != 799 {
		t.Errorf("got %d lines and %d dropped, want 1 and 799", got, h.Dropped())
	}
}

// The handler keeps slog's own contract (attributes, groups).
func TestHandler_Contract(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return loglimit.New(slog.NewJSONHandler(&out, nil), time.Hour)
	}, func(t *testing.T) map[string]any {
		m := map[string]any{}
		if err := json.Unmarshal(out.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		return m
	})
}
