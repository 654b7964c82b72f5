package summary

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/section"
)

// Logfmt is the summary as one line of key=value pairs without a line break.
// What is not known has no pair.
func Logfmt(r *cimeter.Record) string {
	b := &strings.Builder{}
	b.WriteString("cimeter")
	word := func(key, v string) {
		if v != "" {
			fmt.Fprintf(b, " %s=%s", key, quote(v))
		}
	}
	number := func(key string, v opt, decimals int) {
		if v.Known {
			fmt.Fprintf(b, " %s=%s", key, strconv.FormatFloat(v.Value, 'f', decimals, 64))
		}
	}
	word("build", r.Number)
	word("key", r.Key)
	word("project", r.Project)
	word("name", r.Name)
	word("machine", r.Machine)
	word("runner", r.Runner.Key())
	word("result", r.Result)
	u := &r.Usage
	number("wall_s", wall(u, r.StartedAt, r.EndedAt), 1)
	number("queue_s", queued(r), 1)
	number("cpu_s", u.CPUSeconds.Total, 1)
	if s := u.CPUCores; s != nil {
		number("cores_avg", some(s.Avg), 2)
		number("cores_max", some(s.Max), 2)
		number("cores_stddev", s.StdDev, 2)
	}
	number("throttled_s", u.CPUThrottledSeconds, 1)
	number("mem_peak_bytes", peak(u), 0)
	if r.Limits != nil {
		number("mem_limit_bytes", known(r.Limits.MemoryBytes), 0)
		number("cores_limit", r.Limits.CPUCores, 2)
	}
	if p := u.IOBytes; p != nil {
		number("disk_read_bytes", some(float64(p.Read)), 0)
		number("disk_write_bytes", some(float64(p.Write)), 0)
	}
	if p := u.IOOperations; p != nil {
		number("disk_read_ops", some(float64(p.Read)), 0)
		number("disk_write_ops", some(float64(p.Write)), 0)
	}
	if p := u.NetworkBytes; p != nil {
		number("net_receive_bytes", some(float64(p.Receive)), 0)
		number("net_transmit_bytes", some(float64(p.Transmit)), 0)
	}
	number("oom_kills", known(u.OOMKills), 0)
	number("coverage", r.Coverage, 3)
	fmt.Fprintf(b, " complete=%t", r.Complete)
	return b.String()
}

// quote bounds and cleans a value, and quotes it where logfmt wants that.
func quote(v string) string {
	v = display.Fit(v, 200, cut)
	if strings.ContainsAny(v, "\" =\\") {
		return strconv.Quote(v)
	}
	return v
}

// JSON writes the record itself, indented and exact; in strings all that is not
// printable is escaped by JSON's own rules.
func JSON(w io.Writer, r *cimeter.Record) error { return JSONDivided(w, section.Divided{Record: r}) }

// JSONDivided writes a record as JSON does, with its sections.
func JSONDivided(w io.Writer, r section.Divided) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(display.JSON(b), '\n'))
	return err
}
