package otlp

import (
	"crypto/sha256"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/protoappend"
)

// Field numbers of opentelemetry/proto/trace/v1.
const (
	spanTraceID    = 1
	spanID         = 2
	spanParent     = 4
	spanName       = 5
	spanKind       = 6
	spanStart      = 7
	spanEnd        = 8
	spanAttr       = 9
	spanEvents     = 11
	spanStatus     = 15
	eventTime      = 1
	eventName      = 2
	eventAttr      = 3
	statusCode     = 3
	statusOK       = 1
	statusError    = 2
	kindInternal   = 1
	kindServer     = 2
	maxStages      = 1000 // spans of one record: more are no stages that anybody reads
	actionOfBuilds = "RUN"
	taskSpan       = "task" // what the id of a build's second span is made of
)

// ids makes the ids of a build's spans from its key: the same whoever sends them,
// and however often.
type ids struct {
	key   string
	trace [16]byte
}

func newIDs(key string) ids {
	sum := sha256.Sum256([]byte("cimeter trace\x00" + key))
	return ids{key: key, trace: [16]byte(sum[:16])}
}

// span returns the id of the span of that name; no name is given twice.
func (d ids) span(name string) []byte {
	sum := sha256.Sum256([]byte("cimeter span\x00" + d.key + "\x00" + name))
	return sum[:8]
}

// span is what is told of a pipeline run, a task run or a stage.
type span struct {
	id, parent []byte
	name       string
	kind       uint64
	start, end time.Time
	status     uint64 // 0 is not set
}

// appendTrace appends a request with the spans of a build: the run of its
// pipeline, as far as this record tells, from when it was queued; in that the
// run of its task; in that its stages. The first two have the attributes of the
// semantic conventions (docs/cicd/cicd-spans.md).
func (o *Traces) appendTrace(b []byte, r *cimeter.Record) []byte {
	d := newIDs(r.Key)
	b, resource := protoappend.Open(b, requestResource)
	b = append(b, o.head...)
	b = protoappend.String(b, resourceSchema, schemaURL)
	b, scope := protoappend.Open(b, resourceScope)
	b = append(b, o.scope...)

	run := span{id: d.span("run"), name: actionOfBuilds, kind: kindServer, start: r.StartedAt, end: r.EndedAt, status: statusOf(r.Result)}
	if r.Project != "" {
		run.name += " " + r.Project
	}
	if !r.QueuedAt.IsZero() && r.QueuedAt.Before(r.StartedAt) {
		run.start = r.QueuedAt
	}
	b, at := d.open(b, run)
	b = texts(b,
		"cicd.pipeline.name", r.Project, "cicd.pipeline.action.name", actionOfBuilds, "cicd.pipeline.run.id", r.Pipeline,
		"cicd.pipeline.result", resultOf(r.Result), "error.type", errorOf(r.Result))
	b = identity(b, &r.Build)
	b = protoappend.Close(b, at)

	task := span{id: d.span(taskSpan), parent: run.id, name: r.Name, kind: kindInternal, start: r.StartedAt, end: r.EndedAt, status: run.status}
	if task.name == "" {
		task.name = r.Number
	}
	b, at = d.open(b, task)
	b = texts(b,
		"cicd.pipeline.task.name", r.Name, "cicd.pipeline.task.run.id", r.Number, "cicd.pipeline.task.run.url.full", r.URL,
		"cicd.pipeline.task.run.result", resultOf(r.Result), "error.type", errorOf(r.Result),
		"cicd.worker.id", r.Runner.Key(), "cicd.worker.name", r.Runner.Name, "host.name", r.Machine,
		"cimeter.pipeline_stage", r.PipelineStage)
	b = identity(b, &r.Build)
	if c, ok := r.Coverage.Get(); ok {
		b = appendDoubleAttribute(b, spanAttr, "cimeter.coverage", c)
	}
	b = usage(b, &r.Usage)
	for _, v := range r.Verdicts {
		b = event(b, r.EndedAt, v)
	}
	b = protoappend.Close(b, at)

	for i := range r.Stages[:min(len(r.Stages), maxStages)] {
		b = d.stage(b, &r.Stages[i], i, task.id)
	}
	b = protoappend.Close(b, scope)
	return protoappend.Close(b, resource)
}

func (d ids) stage(b []byte, s *cimeter.Stage, i int, parent []byte) []byte {
	sp := span{
		id: d.span("stage\x00" + s.Name + "\x00" + strconv.Itoa(s.Attempt) + "\x00" + strconv.Itoa(i)), parent: parent,
		name: s.Name, kind: kindInternal, start: s.StartedAt, end: s.EndedAt,
	}
	code, known := s.ExitCode.Get()
	if known && code != 0 {
		sp.status = statusError
	}
	b, at := d.open(b, sp)
	b = texts(b, "cimeter.stage", s.Name, "cimeter.boundary", string(s.Boundary))
	if s.Alongside {
		b = texts(b, "cimeter.alongside", "true")
	}
	if s.Attempt > 0 {
		b = appendIntAttribute(b, spanAttr, "cimeter.attempt", uint64(s.Attempt))
	}
	if known {
		b = appendIntAttribute(b, spanAttr, "process.exit.code", uint64(code))
	}
	b = usage(b, &s.Usage)
	return protoappend.Close(b, at)
}

// open begins a span and appends all but its attributes. A span never ends
// before it begins: clocks are set while builds run.
func (d ids) open(b []byte, s span) ([]byte, int) {
	b, at := protoappend.Open(b, scopeSpans)
	b = protoappend.Bytes(b, spanTraceID, d.trace[:])
	b = protoappend.Bytes(b, spanID, s.id)
	if s.parent != nil {
		b = protoappend.Bytes(b, spanParent, s.parent)
	}
	b = protoappend.String(b, spanName, s.name)
	b = protoappend.Varint(b, spanKind, s.kind)
	start := nano(s.start)
	b = protoappend.Fixed64(b, spanStart, start)
	b = protoappend.Fixed64(b, spanEnd, max(start, nano(s.end)))
	if s.status != 0 {
		var inner int
		b, inner = protoappend.Open(b, spanStatus)
		b = protoappend.Varint(b, statusCode, s.status)
		b = protoappend.Close(b, inner)
	}
	return b, at
}

func statusOf(result string) uint64 {
	switch result {
	case "success":
		return statusOK
	case "failed":
		return statusError
	}
	return 0
}

func errorOf(result string) string {
	if result == "failed" {
		return "_OTHER"
	}
	return ""
}

// texts appends attributes of a span, names and values in turn, and leaves out
// those without a value.
func texts(b []byte, pairs ...string) []byte {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			b = appendAttribute(b, spanAttr, pairs[i], pairs[i+1])
		}
	}
	return b
}

// identity appends what both runs are known by.
func identity(b []byte, r *cimeter.Build) []byte {
	b = texts(b,
		"cimeter.build", r.Key, "cimeter.ci", r.CI, "cimeter.event", r.Event, "server.address", r.Server,
		"vcs.provider.name", provider(r.CI), "vcs.ref.head.name", r.Ref, "vcs.ref.head.revision", r.SHA)
	return b
}

// provider is the forge of a CI system that is part of one.
func provider(ci string) string {
	switch ci {
	case "gitlab", "gitea", "forgejo", "github":
		return ci
	}
	return ""
}

// usage appends what was spent, as attributes of cimeter's own: the conventions
// have none for a span. Units are those of the metric of the like name: seconds
// and bytes.
func usage(b []byte, u *cimeter.Usage) []byte {
	for _, f := range []struct {
		key string
		v   cimeter.Opt[float64]
	}{
		{"cimeter.cpu.time", u.CPUSeconds.Total}, {"cimeter.cpu.time.user", u.CPUSeconds.User},
		{"cimeter.cpu.time.system", u.CPUSeconds.System}, {"cimeter.cpu.throttled", u.CPUThrottledSeconds},
	} {
		if v, ok := f.v.Get(); ok {
			b = appendDoubleAttribute(b, spanAttr, f.key, v)
		}
	}
	if u.CPUCores != nil {
		b = appendDoubleAttribute(b, spanAttr, "cimeter.cpu.cores.avg", u.CPUCores.Avg)
		b = appendDoubleAttribute(b, spanAttr, "cimeter.cpu.cores.max", u.CPUCores.Max)
	}
	number := func(key string, v uint64) { b = appendIntAttribute(b, spanAttr, key, v) }
	if u.MemoryBytes != nil {
		if v, ok := u.MemoryBytes.Peak.Get(); ok {
			number("cimeter.memory.peak", v)
		}
	}
	if io := u.IOBytes; io != nil {
		number("cimeter.disk.io.read", io.Read)
		number("cimeter.disk.io.write", io.Write)
	}
	if n := u.NetworkBytes; n != nil {
		number("cimeter.network.io.receive", n.Receive)
		number("cimeter.network.io.transmit", n.Transmit)
	}
	if v, ok := u.ProcessesMax.Get(); ok {
		number("cimeter.processes.max", v)
	}
	if v, ok := u.OOMKills.Get(); ok {
		number("cimeter.oom_kills", v)
	}
	return b
}

func event(b []byte, at time.Time, v cimeter.Verdict) []byte {
	b, pos := protoappend.Open(b, spanEvents)
	b = protoappend.Fixed64(b, eventTime, nano(at))
	b = protoappend.String(b, eventName, "cimeter.verdict."+v.Kind)
	if v.Stage != "" {
		b = appendAttribute(b, eventAttr, "cimeter.stage", v.Stage)
	}
	b = appendAttribute(b, eventAttr, "cimeter.evidence", v.Evidence)
	return protoappend.Close(b, pos)
}

func appendDoubleAttribute(b []byte, num protowire.Number, key string, v float64) []byte {
	b, at := protoappend.Open(b, num)
	b = protoappend.String(b, keyKey, key)
	b, inner := protoappend.Open(b, keyValue)
	b = protoappend.Double(b, valueDouble, v)
	b = protoappend.Close(b, inner)
	return protoappend.Close(b, at)
}

func appendIntAttribute(b []byte, num protowire.Number, key string, v uint64) []byte {
	b, at := protoappend.Open(b, num)
	b = protoappend.String(b, keyKey, key)
	b, inner := protoappend.Open(b, keyValue)
	b = protoappend.Varint(b, valueInt, v)
	b = protoappend.Close(b, inner)
	return protoappend.Close(b, at)
}
