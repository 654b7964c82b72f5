package summary

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// CSVHeader is the first row of a list of builds for a spreadsheet (RFC 4180):
// the columns' names, which say the unit.
func CSVHeader() []string {
	var names []string
	for _, c := range csvColumns() {
		names = append(names, c.name)
	}
	return names
}

// CSVRow is the row of a build. What is not known is an empty cell.
func CSVRow(r *cimeter.Record) []string {
	cs := csvColumns()
	cells := make([]string, 0, len(cs))
	for _, c := range cs {
		cells = append(cells, c.value(r))
	}
	return cells
}

type csvColumn struct {
	name  string
	value func(r *cimeter.Record) string
}

// csvColumns are a contract: new ones come at the end.
func csvColumns() []csvColumn {
	text := func(f func(*cimeter.Record) string) func(*cimeter.Record) string {
		return func(r *cimeter.Record) string { return CSVText(f(r)) }
	}
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339Nano)
	}
	return []csvColumn{
		{"key", text(func(r *cimeter.Record) string { return r.Key })},
		{"ci", text(func(r *cimeter.Record) string { return r.CI })},
		{"server", text(func(r *cimeter.Record) string { return r.Server })},
		{"project", text(func(r *cimeter.Record) string { return r.Project })},
		{"number", text(func(r *cimeter.Record) string { return r.Number })},
		{"name", text(func(r *cimeter.Record) string { return r.Name })},
		{"pipeline", text(func(r *cimeter.Record) string { return r.Pipeline })},
		{"pipeline_stage", text(func(r *cimeter.Record) string { return r.PipelineStage })},
		{"ref", text(func(r *cimeter.Record) string { return r.Ref })},
		{"machine", text(func(r *cimeter.Record) string { return r.Machine })},
		{"runner", text(func(r *cimeter.Record) string { return r.Runner.Key() })},
		{"result", text(func(r *cimeter.Record) string { return r.Result })},
		{"complete", func(r *cimeter.Record) string { return strconv.FormatBool(r.Complete) }},
		{"queued_at", func(r *cimeter.Record) string { return at(r.QueuedAt) }},
		{"started_at", func(r *cimeter.Record) string { return at(r.StartedAt) }},
		{"ended_at", func(r *cimeter.Record) string { return at(r.EndedAt) }},
		{"wall_seconds", func(r *cimeter.Record) string { return CSVKnown(Wall(r)) }},
		{"cpu_seconds", func(r *cimeter.Record) string { return CSVKnown(r.Usage.CPUSeconds.Total) }},
		{"cpu_user_seconds", func(r *cimeter.Record) string { return CSVKnown(r.Usage.CPUSeconds.User) }},
		{"cpu_system_seconds", func(r *cimeter.Record) string { return CSVKnown(r.Usage.CPUSeconds.System) }},
		{"cpu_cores_avg", func(r *cimeter.Record) string {
			return part(r.Usage.CPUCores, func(s *cimeter.Stat) string { return csvNumber(s.Avg) })
		}},
		{"cpu_cores_max", func(r *cimeter.Record) string {
			return part(r.Usage.CPUCores, func(s *cimeter.Stat) string { return csvNumber(s.Max) })
		}},
		{"cpu_throttled_seconds", func(r *cimeter.Record) string { return CSVKnown(r.Usage.CPUThrottledSeconds) }},
		{"memory_peak_bytes", func(r *cimeter.Record) string {
			return part(r.Usage.MemoryBytes, func(s *cimeter.MemoryStat) string { return CSVKnown(s.Peak) })
		}},
		{"io_read_bytes", func(r *cimeter.Record) string {
			return part(r.Usage.IOBytes, func(d *cimeter.ReadWrite[uint64]) string { return csvNumber(d.Read) })
		}},
		{"io_write_bytes", func(r *cimeter.Record) string {
			return part(r.Usage.IOBytes, func(d *cimeter.ReadWrite[uint64]) string { return csvNumber(d.Write) })
		}},
		{"network_receive_bytes", func(r *cimeter.Record) string {
			return part(r.Usage.NetworkBytes, func(d *cimeter.ReceiveTransmit[uint64]) string { return csvNumber(d.Receive) })
		}},
		{"network_transmit_bytes", func(r *cimeter.Record) string {
			return part(r.Usage.NetworkBytes, func(d *cimeter.ReceiveTransmit[uint64]) string { return csvNumber(d.Transmit) })
		}},
		{"oom_kills", func(r *cimeter.Record) string { return CSVKnown(r.Usage.OOMKills) }},
	}
}

func csvNumber[T uint64 | float64](v T) string {
	b, err := json.Marshal(v) // the shortest text that reads back the same
	if err != nil {
		return ""
	}
	return string(b)
}

// CSVKnown is a figure in a cell; what is not known is an empty one.
func CSVKnown[T uint64 | float64](o cimeter.Opt[T]) string {
	if v, ok := o.Get(); ok {
		return csvNumber(v)
	}
	return ""
}

func part[T any](p *T, f func(*T) string) string {
	if p == nil {
		return ""
	}
	return f(p)
}

// CSVText makes a name safe in a cell: clean, and no formula to a spreadsheet, to
// which a full-width sign may be one, too.
func CSVText(s string) string {
	s = display.Clean(s)
	if first, n := utf8.DecodeRuneInString(s); n > 0 && strings.ContainsRune("=+-@＝＋－＠", first) {
		return "'" + s
	}
	return s
}
