// Package dashboard renders deploy/grafana/cimeter.json from the catalogue.
//
// It owns the choice of panels and their expressions. Units and descriptions
// are the catalogue's, and so a metric that is renamed there is renamed or
// missed here: an expression that names one that is not in the catalogue is an
// error. Only tests import it. Start with [Render]; it may be called from
// anywhere at any time.
package dashboard

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cimeter/cimeter/internal/catalog"
)

// Panel is one chart.
type Panel struct {
	Title  string
	Metric string // that it is about: gives unit and description
	Unit   string // in Grafana's words, where it is not that of Metric
	Kind   string // timeseries, stat, table; "" is timeseries
	Stack  bool
	Width  int // of 24; 0 is 12
	Lines  []Line
}

// Line is one expression of a panel.
type Line struct {
	Expr   string
	Legend string
}

// Row is a part of the dashboard.
type Row struct {
	Title  string
	Panels []Panel
}

const rowHeight = 8

var (
	metricName = regexp.MustCompile(`\bcimeter_[a-z0-9_]+`)
	// Recorded is the name of what a recording rule makes: level:metric:operation.
	Recorded = regexp.MustCompile(`\b[a-z]+:cimeter_[a-z0-9_]+:[a-z0-9_]+\b`)
)

// Metrics returns the metrics that an expression names, without the suffixes of
// a histogram's series. The error names one that the catalogue does not have.
func Metrics(expr string) ([]catalog.Metric, error) {
	var all []catalog.Metric
	bare := Recorded.ReplaceAllString(labelValues.ReplaceAllString(expr, `""`), "")
	for _, name := range metricName.FindAllString(bare, -1) {
		m, ok := catalog.Lookup(name)
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, has := strings.CutSuffix(name, suffix); has && !ok {
				if h, is := catalog.Lookup(base); is && h.Kind == catalog.Histogram {
					m, ok = h, true
				}
			}
		}
		if !ok {
			return nil, fmt.Errorf("expression %s: metric %s is not in the catalogue", expr, name)
		}
		all = append(all, m)
	}
	return all, nil
}

var (
	labelValues = regexp.MustCompile(`"[^"]*"`)
	matchers    = regexp.MustCompile(`(\bcimeter_[a-z0-9_]+)\{([^}]*)\}`)
	matcher     = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouping    = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
)

// target are the labels that a scrape adds.
var target = []string{"job", "instance"}

// CheckLabels returns an error for a label of an expression that no metric in it
// has.
func CheckLabels(expr string) error {
	metrics, err := Metrics(expr)
	if err != nil {
		return err
	}
	if Recorded.MatchString(expr) {
		metrics = nil // it has labels of its own
	}
	known := append([]string{"le"}, target...)
	for _, m := range metrics {
		known = append(known, m.Labels...)
	}
	bare := labelValues.ReplaceAllString(expr, `""`)
	for _, m := range matchers.FindAllStringSubmatch(bare, -1) {
		own, err := Metrics(m[1])
		if err != nil {
			return err
		}
		for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(append([]string{"le"}, append(target, own[0].Labels...)...), l[1]) {
				return fmt.Errorf("expression %s: %s has no label %s", expr, m[1], l[1])
			}
		}
	}
	for _, g := range grouping.FindAllStringSubmatch(bare, -1) {
		for l := range strings.SplitSeq(g[1], ",") {
			if l = strings.TrimSpace(l); l != "" && len(metrics) > 0 && !slices.Contains(known, l) {
				return fmt.Errorf("expression %s: nothing in it has the label %s", expr, l)
			}
		}
	}
	return nil
}

// unit is a metric's unit in Grafana's words.
func unit(m catalog.Metric) string {
	switch m.Unit {
	case "seconds":
		return "s"
	case "bytes":
		return "bytes"
	case "ratio":
		return "percentunit"
	}
	return "short"
}

type object = map[string]any

var source = object{"type": "prometheus", "uid": "${datasource}"}

// Render returns the dashboard's JSON.
func Render() ([]byte, error) {
	var panels []object
	y, id := 0, 0
	for _, row := range rows() {
		id++
		panels = append(panels, object{"type": "row", "title": row.Title, "id": id, "collapsed": false, "panels": []any{}, "gridPos": object{"x": 0, "y": y, "w": 24, "h": 1}})
		y++
		x := 0
		for _, p := range row.Panels {
			id++
			if p.Width == 0 {
				p.Width = 12
			}
			if x+p.Width > 24 {
				x, y = 0, y+rowHeight
			}
			one, err := panel(p, id)
			if err != nil {
				return nil, err
			}
			one["gridPos"] = object{"x": x, "y": y, "w": p.Width, "h": rowHeight}
			panels = append(panels, one)
			x += p.Width
		}
		y += rowHeight
	}
	b, err := json.MarshalIndent(object{
		"title": "cimeter", "uid": "cimeter", "tags": []string{"ci", "cimeter"}, "editable": true, "schemaVersion": 39, "version": 1,
		"timezone": "browser", "refresh": "30s", "graphTooltip": 1, "time": object{"from": "now-6h", "to": "now"},
		"annotations": object{"list": []any{}}, "links": []any{},
		"templating": object{"list": variables()}, "panels": panels,
	}, "", " ")
	if err != nil {
		return nil, fmt.Errorf("render dashboard: %w", err)
	}
	return append(b, '\n'), nil
}

func panel(p Panel, id int) (object, error) {
	m, ok := catalog.Lookup(p.Metric)
	if !ok {
		return nil, fmt.Errorf("panel %s: metric %s is not in the catalogue", p.Title, p.Metric)
	}
	if p.Unit == "" {
		p.Unit = unit(m)
	}
	if p.Kind == "" {
		p.Kind = "timeseries"
	}
	var lines []object
	for i, l := range p.Lines {
		if err := CheckLabels(l.Expr); err != nil {
			return nil, fmt.Errorf("panel %s: %w", p.Title, err)
		}
		lines = append(lines, object{"refId": string(rune('A' + i)), "expr": l.Expr, "legendFormat": l.Legend, "datasource": source, "instant": p.Kind != "timeseries", "range": p.Kind == "timeseries"})
	}
	stack := "none"
	if p.Stack {
		stack = "normal"
	}
	defaults := object{"unit": p.Unit, "min": 0}
	if p.Kind == "timeseries" {
		fill := 0
		if p.Stack {
			fill = 30
		}
		defaults["custom"] = object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": fill, "showPoints": "never", "spanNulls": false, "stacking": object{"mode": stack, "group": "A"}}
	}
	o := object{
		"id": id, "type": p.Kind, "title": p.Title, "description": m.Help + " (" + m.Name + ")", "datasource": source,
		"targets": lines, "fieldConfig": object{"defaults": defaults, "overrides": []any{}},
	}
	switch p.Kind {
	case "timeseries":
		o["options"] = object{"legend": object{"displayMode": "table", "placement": "bottom", "calcs": []string{"mean", "max"}}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	case "stat":
		o["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}, "colorMode": "none", "graphMode": "area"}
	}
	return o, nil
}

// variables are what the viewer chooses. One job at a time: an agent and its
// server both count the same builds.
func variables() []object {
	query := func(name, label, q string, many bool) object {
		o := object{
			"name": name, "label": label, "type": "query", "datasource": source, "query": object{"query": q, "refId": name}, "definition": q,
			"refresh": 2, "sort": 1, "multi": many, "includeAll": many, "hide": 0,
		}
		if many {
			o["allValue"] = ".*"
			o["current"] = object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}}
		}
		return o
	}
	return []object{
		{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0},
		query("job", "job", "label_values("+catalog.BuildInfo+", job)", false),
		query("project", "project", `label_values(`+catalog.Builds+`{job="$job"}, project)`, true),
		query("machine", "machine", `label_values(`+catalog.Builds+`{job="$job"}, machine)`, true),
	}
}
