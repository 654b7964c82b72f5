package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/recordjson"
)

// Bounds of one record beside those of its JSON.
const (
	maxKeyBytes  = 512
	maxNameBytes = 1024
	maxURLBytes  = 4096
	maxStages    = 1000
	maxListed    = 1024 // gaps, verdicts
	maxSteps     = 2048 // of the trace
)

// DecodeRecord reads one record's JSON. Members that are not known are ignored;
// the character NUL, which no store takes, becomes U+FFFD. The error wraps
// [cimeter.ErrInvalid] and says what was wanted.
func DecodeRecord(line []byte) (*cimeter.Record, error) {
	nul, err := scan(line)
	if err != nil {
		return nil, err
	}
	if nul {
		line = withoutNUL(line)
	}
	r := new(cimeter.Record)
	if err := recordjson.Decode(line, r); err != nil {
		return nil, fmt.Errorf("no record: %.200s: %w", err.Error(), cimeter.ErrInvalid)
	}
	if err := check(r); err != nil {
		return nil, err
	}
	return r, nil
}

// keyOf is the key of a line that is no record, as far as it can be told.
func keyOf(line []byte) string {
	if _, err := scan(line); err != nil {
		return ""
	}
	var r struct {
		Key string `json:"key"`
	}
	if json.Unmarshal(line, &r) != nil || !validKey(r.Key) {
		return ""
	}
	return r.Key
}

// scan bounds a document before it is decoded, and says whether a string in it
// has the escape of NUL.
func scan(doc []byte) (nul bool, err error) {
	depth, elements, quoted := 0, 0, false
	for i := 0; i < len(doc); i++ {
		switch c := doc[i]; {
		case quoted && c == '\\':
			nul = nul || bytes.HasPrefix(doc[i:], []byte(`\u0000`))
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			elements++
		case c == '}' || c == ']':
			depth--
		case c == ',':
			elements++
		}
		if depth > maxDepth || elements > maxElements {
			return false, fmt.Errorf("JSON is deeper than %d or has more than %d elements: %w", maxDepth, maxElements, cimeter.ErrInvalid)
		}
	}
	return nul, nil
}

func withoutNUL(doc []byte) []byte {
	out := bytes.Clone(doc)
	for i := 0; i < len(out); i++ {
		if out[i] == '\\' {
			if bytes.HasPrefix(out[i:], []byte(`\u0000`)) {
				copy(out[i:], `\ufffd`)
			}
			i++
		}
	}
	return out
}

func check(r *cimeter.Record) error {
	invalid := func(what string, args ...any) error {
		return fmt.Errorf(what+": %w", append(args, cimeter.ErrInvalid)...)
	}
	switch ended, started := r.EndedAt.Year(), r.StartedAt.Year(); {
	case !validKey(r.Key):
		return invalid("key %.64q: want a percent-encoded path of at most %d bytes", r.Key, maxKeyBytes)
	case r.Schema < 0 || r.Schema > cimeter.RecordSchema+1:
		return invalid("schema %d: want at most %d", r.Schema, cimeter.RecordSchema+1)
	case ended < 1970 || ended > 2261 || started < 1970 || started > 2261:
		return invalid("started_at and ended_at: want times between 1970 and 2261")
	case !(r.Usage.WallSeconds >= 0):
		return invalid("usage.wall_seconds %g: want 0 or more", r.Usage.WallSeconds)
	case len(r.Stages) > maxStages, len(r.Gaps) > maxListed, len(r.Verdicts) > maxListed:
		return invalid("%d stages, %d gaps, %d verdicts: want at most %d, %d, %d", len(r.Stages), len(r.Gaps), len(r.Verdicts), maxStages, maxListed, maxListed)
	}
	for _, f := range []struct{ name, value string }{
		{"ci", r.CI}, {"server", r.Server}, {"project", r.Project}, {"number", r.Number}, {"name", r.Name}, {"pipeline", r.Pipeline},
		{"pipeline_stage", r.PipelineStage}, {"ref", r.Ref}, {"sha", r.SHA}, {"event", r.Event}, {"machine", r.Machine}, {"result", r.Result},
		{"runner.id", r.Runner.ID}, {"runner.short_token", r.Runner.ShortToken}, {"runner.name", r.Runner.Name},
	} {
		if len(f.value) > maxNameBytes {
			return invalid("%s of %d bytes: want at most %d", f.name, len(f.value), maxNameBytes)
		}
	}
	if len(r.URL) > maxURLBytes {
		return invalid("url of %d bytes: want at most %d", len(r.URL), maxURLBytes)
	}
	for i, s := range r.Stages {
		if s.Name == "" || len(s.Name) > maxNameBytes || !(s.Usage.WallSeconds >= 0) {
			return invalid("stages[%d]: want a name of at most %d bytes and wall_seconds of 0 or more", i, maxNameBytes)
		}
	}
	return checkTrace(r.Trace, invalid)
}

func checkTrace(t *cimeter.Trace, invalid func(string, ...any) error) error {
	if t == nil {
		return nil
	}
	if !(t.StepSeconds > 0) {
		return invalid("trace.step_seconds %g: want more than 0", t.StepSeconds)
	}
	steps := -1
	for _, c := range [][]cimeter.Opt[int64]{
		t.CPUMillicores, t.CPUMillicoresMax, t.MemoryKiB, t.MemoryWorkingSetKiB,
		t.IOReadBytesPerSecond, t.IOWriteBytesPerSecond, t.NetworkReceivePerSec, t.NetworkTransmitPerSec,
	} {
		if c == nil {
			continue
		}
		if steps < 0 {
			steps = len(c)
		}
		if len(c) != steps || len(c) > maxSteps {
			return invalid("trace: columns of %d and %d steps: want the same in all, at most %d", steps, len(c), maxSteps)
		}
	}
	return nil
}

// validKey tells whether key can stand in a path as cimeter.BuildKey makes it.
func validKey(key string) bool {
	if key == "" || len(key) > maxKeyBytes || !strings.Contains(key, "/") {
		return false
	}
	for i := range len(key) {
		if c := key[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"#<>?[\]^{|}`+"`", c) >= 0 {
			return false
		}
	}
	return true
}
