package web

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// traceJSON is what the charts' script reads: the trace with the bounds of the
// stages and the limits. Columns are as in the record; null is a step without
// a reading.
type traceJSON struct {
	Step    float64      `json:"step"` // seconds
	From    float64      `json:"from"` // of the axis, seconds since the build's start
	To      float64      `json:"to"`
	Running bool         `json:"running,omitempty"`
	Compare bool         `json:"compare,omitempty"` // each pair is of two builds
	Kinds   bool         `json:"kinds,omitempty"`   // mem is of kinds: anonymous, files and kernel, swap
	Ops     bool         `json:"ops,omitempty"`     // disk is of operations: thousandths a second
	CPU     []jsonColumn `json:"cpu"`               // millicores: average, max
	Memory  []jsonColumn `json:"mem"`               // KiB: total, working set
	Disk    []jsonColumn `json:"disk"`              // bytes a second: read, written
	Net     []jsonColumn `json:"net"`               // bytes a second: received, sent
	Limits  struct {
		CPU    cimeter.Opt[float64] `json:"cpu"` // cores
		Memory cimeter.Opt[uint64]  `json:"mem"` // bytes
	} `json:"limits"`
	Peak   cimeter.Opt[float64] `json:"peak"` // bytes
	Stages []traceStage         `json:"stages"`
}

type jsonColumn []cimeter.Opt[int64]

type traceStage struct {
	Name      string  `json:"name"`
	From      float64 `json:"from"`
	To        float64 `json:"to"`
	Alongside bool    `json:"alongside,omitempty"`
	OOM       bool    `json:"oom,omitempty"`
	Throttled float64 `json:"throttled,omitempty"` // share of its periods
}

// trace is GET /trace/{key}.
func (p *Pages) trace(w http.ResponseWriter, r *http.Request) error {
	record, running, err := p.record(r.Context(), r, "/trace/")
	if err != nil {
		return err
	}
	a := wholeAxis(record)
	out := traceJSON{From: a.From, To: a.To, Running: running, Peak: peak(&record.Usage), Stages: []traceStage{}}
	t := record.Trace
	if t == nil {
		t = &cimeter.Trace{}
	}
	out.Step = t.StepSeconds
	out.CPU = []jsonColumn{t.CPUMillicores, t.CPUMillicoresMax}
	out.Memory = []jsonColumn{t.MemoryKiB, t.MemoryWorkingSetKiB}
	out.Disk = []jsonColumn{t.IOReadBytesPerSecond, t.IOWriteBytesPerSecond}
	view := viewOf(r.URL.Query(), record)
	if out.Kinds = view.Kinds; view.Kinds {
		out.Memory, out.Peak = columnsOfKinds(record, kindsOf(record), true, 1./kib), opt{}
	}
	if out.Ops = view.Operations; view.Operations {
		out.Disk = columnsOfKinds(record, operations(), false, 1000)
	}
	out.Net = []jsonColumn{t.NetworkReceivePerSec, t.NetworkTransmitPerSec}
	if l := record.Limits; l != nil {
		out.Limits.CPU, out.Limits.Memory = l.CPUCores, l.MemoryBytes
	}
	for i := range record.Stages {
		s := &record.Stages[i]
		if s.StartedAt.IsZero() {
			continue
		}
		ts := traceStage{Name: stageLabel(s), From: s.StartedAt.Sub(record.StartedAt).Seconds(), To: s.EndedAt.Sub(record.StartedAt).Seconds(),
			Alongside: s.Alongside, OOM: s.Usage.OOMKills.Value+s.Usage.OOMKillsNested.Value > 0}
		if n := s.Usage.CPUPeriods.Value; n > 0 {
			ts.Throttled = float64(s.Usage.CPUThrottledPeriods.Value) / float64(n)
		}
		out.Stages = append(out.Stages, ts)
	}
	return p.sendTrace(w, r, &out)
}

func (p *Pages) sendTrace(w http.ResponseWriter, r *http.Request, out *traceJSON) error {
	b, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("encode trace: %w", err)
	}
	b = append(display.JSON(b), '\n')
	w.Header().Set("Content-Type", "application/json")
	return p.sendZipped(w, r, http.StatusOK, b)
}
