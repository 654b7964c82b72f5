package summary

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// OpenMetrics writes the figures of a build for artifacts:reports:metrics of
// GitLab, one a line, in three significant digits: a merge request shows each
// figure whose text has changed.
//
// GitLab takes a line apart as a shell does, and what is behind a # is lost: so
// the job's name has letters, digits and a few signs there, and nothing else.
func OpenMetrics(w io.Writer, r *cimeter.Record) error {
	var b strings.Builder
	u := &r.Usage
	figure := func(name string, v opt) {
		if !v.Known || v.Value < 0 || math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
			return
		}
		rounded, err := strconv.ParseFloat(strconv.FormatFloat(v.Value, 'e', 2, 64), 64)
		if err != nil {
			return
		}
		fmt.Fprintf(&b, "cimeter_job_%s{job=\"%s\"} %s\n", name, labelText(r.Name), strconv.FormatFloat(rounded, 'f', -1, 64))
	}
	figure("duration_seconds", wall(u, r.StartedAt, r.EndedAt))
	figure("queue_seconds", queued(r))
	figure("cpu_seconds", u.CPUSeconds.Total)
	figure("cpu_throttled_seconds", u.CPUThrottledSeconds)
	figure("memory_peak_bytes", peak(u))
	if p := u.IOBytes; p != nil {
		figure("disk_read_bytes", some(float64(p.Read)))
		figure("disk_write_bytes", some(float64(p.Write)))
	}
	if p := u.NetworkBytes; p != nil {
		figure("network_receive_bytes", some(float64(p.Receive)))
		figure("network_transmit_bytes", some(float64(p.Transmit)))
	}
	b.WriteString("# EOF\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// labelText keeps of a name what can be quoted in no wrong way.
func labelText(s string) string {
	return strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_.:/+", r)) {
			return r
		}
		return '_'
	}, display.Fit(s, 64, "_"))
}

// Annotations writes the link to a build's page for
// artifacts:reports:annotations of GitLab. Without an address there is nothing
// in it.
func Annotations(w io.Writer, address string) error {
	type link struct {
		Label string `json:"label"`
		URL   string `json:"url"`
	}
	doc := map[string][]map[string]link{}
	if strings.HasPrefix(address, "https://") || strings.HasPrefix(address, "http://") {
		doc["cimeter"] = []map[string]link{{"external_link": {"What this job cost", address}}}
	}
	b, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	_, err = w.Write(append(display.JSON(b), '\n'))
	return err
}

// Card is what a card of Drone shows: see docs/drone-card.json.
type Card struct {
	Summary string     `json:"summary"`
	Wrong   string     `json:"wrong"` // "" is nothing
	Usual   string     `json:"usual"`
	URL     string     `json:"url"`
	Stages  []CardLine `json:"stages"`
}

// CardLine is a stage in a card.
type CardLine struct {
	Name   string `json:"name"`
	Time   string `json:"time"`
	CPU    string `json:"cpu"`
	Memory string `json:"memory"`
}

// cardStages bounds a card: it goes through the log in one piece of 16 KiB.
const cardStages = 20

// DroneCard is a card as a step of Drone gives it: with schema, the address of
// the card's template. A card is drawn as markdown: names have letters, digits
// and a few signs.
func DroneCard(r *cimeter.Record, u *Usual, address, schema string) ([]byte, error) {
	c := Card{Summary: plain(strings.TrimPrefix(first(r), "cimeter: ")), Wrong: plain(Wrong(r)), Usual: plain(u.Line()), URL: address, Stages: []CardLine{}}
	for i := range r.Stages {
		if len(c.Stages) == cardStages {
			break
		}
		s := &r.Stages[i]
		l := CardLine{Name: plain(stageName(s)), Time: dash, CPU: dash, Memory: dash}
		if v := wall(&s.Usage, s.StartedAt, s.EndedAt); v.Known {
			l.Time = seconds(v.Value)
		}
		if v := s.Usage.CPUSeconds.Total; v.Known {
			l.CPU = cpuTime(v.Value)
		}
		if v := peak(&s.Usage); v.Known {
			l.Memory = size(v.Value)
		}
		c.Stages = append(c.Stages, l)
	}
	b, err := json.Marshal(map[string]any{"schema": schema, "data": c})
	if err != nil {
		return nil, err
	}
	return display.JSON(b), nil
}

// InLog makes a card one that goes through a step's log, where the runner takes
// it out. It must be written in one piece.
func InLog(card []byte) []byte {
	return []byte("\x1b]1338;" + base64.StdEncoding.EncodeToString(card) + "\x1b]0m\n")
}

// plain keeps of a text what markdown has no use for.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(" -_.,:;/%()+", r) {
			return r
		}
		return ' '
	}, display.Fit(s, spanColumns, "…"))
}
