package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/summary"
)

// peerCount is how many builds of the same job stand beside one.
const peerCount = 20

type buildView struct {
	page
	Result   result
	Running  bool
	Project  link
	Job      link
	Number   string
	Badges   []badge
	Facts    []fact
	Forms    []link // JSON, text, markdown
	Answer   answer
	Findings []finding
	Figures  []keyFigure
	Problem  string
	timelineView
	Unmetered   bool
	Stages      stageTable
	Spread      *spreadTable
	Sections    *sectionTable
	SectionsURL string // asks for them
	NoSections  string // why there are none
	Peers       *peerTable
	Gaps        []gapRow
	About       []fact // of the measurement itself
	GapsOpen    bool
}

type badge struct{ Text, Title, Class, URL string }

type fact struct {
	Label string
	Link  link
	Time  *stamp
}

type gapRow struct{ From, To, Reason, Hides string }

// keyOf is the key as it stands in the path below prefix.
func keyOf(r *http.Request, prefix string) string {
	return strings.TrimPrefix(r.URL.EscapedPath(), prefix)
}

// record reads a build by its key: as it stands in the path, percent-encoded
// as keys are, or else decoded.
func (p *Pages) record(ctx context.Context, r *http.Request, prefix string) (*cimeter.Record, bool, error) {
	key := keyOf(r, prefix)
	if len(key) > 4096 {
		return nil, false, fmt.Errorf("build key of %d bytes: want at most 4096: %w", len(key), cimeter.ErrInvalid)
	}
	record, running, err := p.o.Source.Build(ctx, key)
	if plain, bad := url.PathUnescape(key); bad == nil && plain != key && errors.Is(err, cimeter.ErrNotFound) {
		if r2, running2, err2 := p.o.Source.Build(ctx, plain); err2 == nil {
			return r2, running2, nil
		}
	}
	if errors.Is(err, cimeter.ErrNotFound) {
		return nil, false, fmt.Errorf("no build %s: %w", display.Fit(key, 80, "…"), cimeter.ErrNotFound)
	}
	return record, running, err
}

func (p *Pages) build(w http.ResponseWriter, r *http.Request) error {
	record, running, err := p.record(r.Context(), r, "/builds/")
	if err != nil {
		return err
	}
	q := r.URL.Query()
	if as := q.Get("as"); as != "" {
		return p.sendAs(w, r, record, running, as)
	}
	now := p.o.Now()
	path := buildURL(record.Key)
	v := buildView{page: p.page(r, label(&record.Build), "builds"), Result: resultOf(record.Result, running), Running: running,
		Number: display.Fit(record.Number, 24, "…")}
	v.Trace = "/trace/" + pathOf(record.Key)
	v.Plots = true
	v.Live = running
	whole := wholeAxis(record)
	a, zoomed, bad := whole.zoomed(q)
	v.Problem, v.Zoomed = bad, zoomed
	to := func(from, to float64) string {
		z := q
		z = cloneValues(z)
		z.Set("from", short(from))
		z.Set("to", short(to))
		return path + "?" + z.Encode() + "#timeline"
	}
	zoomStage := func(stage string) string {
		if s := stageNamed(record, stage); s != nil && s.EndedAt.After(s.StartedAt) {
			return to(s.StartedAt.Sub(record.StartedAt).Seconds(), s.EndedAt.Sub(record.StartedAt).Seconds())
		}
		return "#timeline"
	}
	v.head(record, now)
	v.Findings = findings(record, zoomStage)
	v.Answer = answerOf(record, v.Findings, zoomStage)
	if v.Unmetered {
		v.Plots, v.Problem = false, ""
	} else {
		v.timeline(record, a, whole, path, q, to)
		v.Stages = stagesOf(record, q, path, to)
		p.part(r, &v.page, "sections", "the sections of the job's log", func(ctx context.Context) error { return p.divide(ctx, &v, record, q, a, path, to) })
	}
	p.part(r, &v.page, "machines", "its machines", func(ctx context.Context) error { return p.spread(ctx, &v, record, now) })
	p.part(r, &v.page, "peers", "the builds of the same job before", func(ctx context.Context) error { return p.peers(ctx, &v, record, now) })
	v.gaps(record)
	return p.render(w, r, http.StatusOK, "build", v)
}

func cloneValues(v url.Values) url.Values {
	c := url.Values{}
	for k, x := range v {
		c[k] = x
	}
	return c
}

// sendAs answers with the record as JSON, or its summary as text or markdown.
func (p *Pages) sendAs(w http.ResponseWriter, r *http.Request, record *cimeter.Record, running bool, as string) error {
	var b strings.Builder
	kind := "text/plain; charset=utf-8"
	switch as {
	case "json":
		kind = "application/json"
		doc, err := json.MarshalIndent(record, "", "  ")
		if err != nil {
			return fmt.Errorf("encode record: %w", err)
		}
		b.Write(display.JSON(doc))
		b.WriteByte('\n')
	case "text":
		o := summary.TextOptions{UTF8: true}
		if p.o.Machines != nil && !running && !unmetered(record) {
			var err error
			if o.Machines, err = p.o.Machines(r.Context(), record.Key); err != nil {
				return err
			}
		}
		if err := summary.Text(&b, record, o); err != nil {
			return err
		}
	case "markdown":
		if err := summary.Markdown(&b, record); err != nil {
			return err
		}
	default:
		return fmt.Errorf("as: want json, text or markdown: %w", cimeter.ErrInvalid)
	}
	w.Header().Set("Content-Type", kind)
	send(w, r, http.StatusOK, []byte(b.String()), nil)
	return nil
}

// head is what identifies the build.
func (v *buildView) head(r *cimeter.Record, now time.Time) {
	if r.Project != "" {
		v.Project = link{name(r.Project), href("/project", "name", r.Project), title(r.Project)}
	}
	job := r.Name
	if job == "" {
		job = r.PipelineStage
	}
	if job != "" {
		v.Job = link{name(job), href("/job", "project", r.Project, "name", r.Name), title(job)}
	}
	if v.Project.Text == "" && v.Job.Text == "" {
		v.Job = link{Text: name(r.Key)}
	}
	v.Crumbs = []link{{Text: "Builds", URL: "/builds"}}
	if r.Project != "" {
		v.Crumbs = append(v.Crumbs, v.Project)
	}
	if job != "" {
		v.Crumbs = append(v.Crumbs, v.Job)
	}
	switch {
	case unmetered(r):
		v.Badges = append(v.Badges, badge{"not metered", "no agent metered it: its CI server told of it", "warn", "#answer"})
	case !r.Complete && !v.Running:
		v.Badges = append(v.Badges, badge{"incomplete", "some of its life was not seen", "warn", "#gaps"})
	}
	if c, ok := r.Coverage.Get(); ok {
		class := ""
		if c < lowCoverage {
			class = "warn"
		}
		v.Badges = append(v.Badges, badge{fmt.Sprintf("coverage %.1f %%", 100*c), "share of the machine's CPU time, while it ran, that was attributed to builds", class, "#gaps"})
	}
	text := func(label, s string) {
		if s != "" {
			v.Facts = append(v.Facts, fact{Label: label, Link: link{Text: display.Fit(s, 40, "…"), Title: title(s)}})
		}
	}
	row := RowOf(r)
	began := stampOf(now, r.StartedAt)
	v.Facts = append(v.Facts, fact{Label: "started", Time: &began})
	if v.Running {
		text("running, so far", seconds(row.WallSeconds))
	} else {
		text("time", optional(row.Wall(), seconds))
	}
	if queue := row.Queue(); queue.Known {
		text("queue", seconds(queue.Value))
	}
	switch {
	case r.Ref != "" && r.SHA != "":
		v.Facts = append(v.Facts, fact{Label: "ref", Link: link{display.Fit(r.Ref, 40, "…") + " " + display.Fit(r.SHA, 8, ""), href("/builds", "project", r.Project, "ref", r.Ref, "t", "30d"), title(r.Ref + " " + r.SHA)}})
	case r.Ref != "":
		v.Facts = append(v.Facts, fact{Label: "ref", Link: link{display.Fit(r.Ref, 40, "…"), href("/builds", "project", r.Project, "ref", r.Ref, "t", "30d"), title(r.Ref)}})
	default:
		text("commit", display.Fit(r.SHA, 12, ""))
	}
	text("event", r.Event)
	text("failed for", r.FailedFor)
	text("tags", strings.Join(r.Tags, ", "))
	if r.Attempt > 1 {
		v.Facts = append(v.Facts, fact{Label: "attempt", Link: link{strconv.Itoa(r.Attempt), href("/builds", "project", r.Project, "job", r.Name, "pipeline", r.Pipeline, "t", "all"), "all attempts"}})
	}
	if r.Machine != "" {
		v.Facts = append(v.Facts, fact{Label: "machine", Link: link{display.Fit(r.Machine, 40, "…"), href("/machine", "name", r.Machine), title(r.Machine)}})
	}
	if k := r.Runner.Key(); k != "" {
		shown := r.Runner.Name
		if shown == "" {
			shown = k
		}
		v.Facts = append(v.Facts, fact{Label: "runner", Link: link{display.Fit(shown, 40, "…"), href("/runner", "key", k), title(k)}})
	}
	text("requested", requested(r))
	if u := outside(r.URL); u != "" {
		v.Facts = append(v.Facts, fact{Label: "its CI server", Link: link{display.Fit(orElse(orElse(r.Server, r.CI), "log"), 32, "…") + " ↗", u, title(u)}})
	}
	path := buildURL(r.Key)
	if v.Unmetered = unmetered(r); v.Unmetered { // a summary of nothing helps nobody
		v.Forms = []link{{"JSON", path + "?as=json", "the whole record"}}
		return
	}
	v.Forms = []link{{"Text", path + "?as=text", "the summary as in the job's log"}, {"Markdown", path + "?as=markdown", "the summary for a note"}, {"JSON", path + "?as=json", "the whole record"}}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// timeline fills lanes, charts and the controls over them.
func (v *buildView) timeline(r *cimeter.Record, a, whole axis, path string, q url.Values, to func(from, to float64) string) {
	v.Lanes = lanes(r, a, to)
	if len(v.Lanes) > 0 {
		for _, b := range v.Lanes[0].Blocks {
			if b.Class != "queue" {
				v.Bands = append(v.Bands, b)
			}
		}
	}
	view, can := viewOf(q, r), viewsOf(r)
	v.Charts = charts(r, a, view)
	v.Trace = href(v.Trace, "mem", map[bool]string{true: "kinds"}[view.Kinds], "disk", map[bool]string{true: "ops"}[view.Operations])
	v.XTicks = xTicks(a)
	rest := cloneValues(q)
	rest.Del("from")
	rest.Del("to")
	v.Whole = path
	if len(rest) > 0 {
		v.Whole += "?" + rest.Encode()
	}
	v.Whole += "#timeline"
	v.From, v.To = short(a.From), short(a.To)
	mid, half := (a.From+a.To)/2, a.length()/2
	v.ZoomIn = to(mid-half/2, mid+half/2)
	v.ZoomOut = to(max(whole.From, mid-2*half), min(whole.To, mid+2*half))
	for i := range v.Charts {
		c := &v.Charts[i]
		z := cloneValues(q)
		z.Del("tpage")
		if c.TableOn = q.Get("table") == c.ID; c.TableOn {
			z.Del("table")
		} else {
			z.Set("table", c.ID)
		}
		c.Table = path + "?" + z.Encode() + "#" + c.ID
		other := func(key, value, there, back string, shown, can bool) {
			z := cloneValues(q)
			z.Del("tpage")
			if z.Del(key); !shown {
				z.Set(key, value)
			}
			if can {
				c.Other = link{map[bool]string{true: back, false: there}[shown], path + "?" + z.Encode() + "#" + c.ID, ""}
			}
		}
		switch c.ID {
		case "mem":
			other("mem", "kinds", "By kind", "Total over time", view.Kinds, can.Kinds)
		case "disk":
			other("disk", "ops", "Operations", "Bytes", view.Operations, can.Operations)
		}
		if c.TableOn && c.Absent == "" {
			v.TraceRows = traceRows(c, r.Trace.StepSeconds, a, q, path)
		}
	}
}

// requested is what a pod asked its cluster to keep free, against what was used of it;
// "" where nothing was asked for.
func requested(r *cimeter.Record) string {
	if r.Limits == nil {
		return ""
	}
	var parts []string
	if v, ok := r.Limits.Requested.CPUCores.Get(); ok && v > 0 {
		s := sig3(v) + " cores"
		if used := r.Usage.CPUCores; used != nil {
			s += " (" + percent(used.Avg/v) + " used)"
		}
		parts = append(parts, s)
	}
	if v, ok := r.Limits.Requested.MemoryBytes.Get(); ok && v > 0 {
		s := amount(float64(v))
		if p := peak(&r.Usage); p.Known {
			s += " (" + percent(p.Value/float64(v)) + " at its peak)"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, ", ")
}
