package web_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/chromedp"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/webtest"
)

// luminance is that of WCAG 2.2 of a colour such as #0072B2.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	if len(hex) == 4 {
		hex = "#" + strings.Repeat(hex[1:2], 2) + strings.Repeat(hex[2:3], 2) + strings.Repeat(hex[3:4], 2)
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(hex, "#"), 16, 32)
	if err != nil || len(hex) != 7 {
		t.Fatalf("colour %q", hex)
	}
	l := 0.0
	for i, weight := range []float64{0.0722, 0.7152, 0.2126} {
		c := float64(n>>(8*i)&0xff) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		l += weight * c
	}
	return l
}

// Text stands out from what is behind it by 4.5 to 1, and lines, marks and the ring of
// the focus by 3 to 1, in both themes.
func TestPalette(t *testing.T) {
	css, err := os.ReadFile("static/style.css")
	if err != nil {
		t.Fatal(err)
	}
	themes := regexp.MustCompile(`:root[^{]*\{(color-scheme:(?:light|dark);[^}]*)\}`).FindAllStringSubmatch(string(css), -1)
	if len(themes) != 3 || themes[1][1] != themes[2][1] {
		t.Fatalf("%d themes: want light, dark by the system, and the same dark by choice", len(themes))
	}
	for _, theme := range themes[:2] {
		colours := map[string]string{}
		for _, m := range regexp.MustCompile(`--(\w+):(#\w+)`).FindAllStringSubmatch(theme[1], -1) {
			colours[m[1]] = m[2]
		}
		for _, pair := range []struct {
			least float64
			on    string
			of    string
		}{
			{4.5, "bg", "text muted link ok bad warn"}, {4.5, "panel", "text muted"}, {4.5, "badbg", "bad"}, {4.5, "warnbg", "warn"}, {4.5, "okbg", "ok"}, {4.5, "most", "mosttext"}, {4.5, "stage", "text"}, {4.5, "stage2", "text"},
			{3, "bg", "cpu mem disk net other focus muted"},
		} {
			for _, name := range strings.Fields(pair.of) {
				a, b := luminance(t, colours[name]), luminance(t, colours[pair.on])
				if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < pair.least {
					t.Errorf("%.19s: --%s on --%s: contrast %.2f: want at least %.1f", theme[1], name, pair.on, ratio, pair.least)
				}
			}
		}
	}
}

// A screen reader finds each chart by its name, and the table that says the same.
func checkChartTree(t *testing.T, tab *webtest.Tab, name, table string) {
	t.Helper()
	var nodes []*accessibility.Node
	tab.Do(func(ctx context.Context, target *chromedp.Target) (chromedp.Void, error) {
		r, err := cdp.Call(ctx, target, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
		if err == nil {
			nodes = r.Nodes
		}
		return chromedp.Void{}, err
	})
	text := func(v *accessibility.Value) string {
		var s string
		if v != nil {
			_ = json.Unmarshal(v.Value, &s) // what is no string is not looked for
		}
		return s
	}
	var groups, applications, canvases int
	for _, n := range nodes {
		switch role := text(n.Role); {
		case role == "group" && text(n.Name) == name:
			groups++
			details := ""
			for _, p := range n.Properties {
				if p.Name == accessibility.PropertyNameDetails {
					for _, to := range p.Value.RelatedNodes {
						details = to.Idref
					}
				}
			}
			if details != table {
				t.Errorf("%s: its details are %q: want %q", name, details, table)
			}
		case role == "application" && strings.HasPrefix(text(n.Name), strings.Fields(name)[0]):
			applications++
		case strings.EqualFold(role, "canvas"):
			canvases++
		}
	}
	if groups != 1 || applications != 1 || canvases != 0 {
		t.Errorf("%s: %d groups, %d drawings, %d canvases of %d nodes: want 1, 1 and 0", name, groups, applications, canvases, len(nodes))
	}
}

// The table of a chart says what the trace does, over all its pages.
func TestTraceTable(t *testing.T) {
	r := webtest.Example()
	h := pages(t, &webtest.Memory{Records: []*cimeter.Record{r}})
	row := regexp.MustCompile(`<tr>((?:<td class="n">[^<]*</td>){8})</tr>`)
	cell := regexp.MustCompile(`>([^<]*)</td>`)
	var rows [][]string
	for page := 1; page <= 3; page++ {
		_, body := get(t, h, fmt.Sprintf("%s?table=cpu&tpage=%d&from=0&to=%.3f", key(r), page, r.Usage.WallSeconds))
		for _, m := range row.FindAllStringSubmatch(body[strings.Index(body, "trace-table\"><thead"):], -1) {
			var cells []string
			for _, c := range cell.FindAllStringSubmatch(m[1], -1) {
				cells = append(cells, c[1])
			}
			rows = append(rows, cells)
		}
	}
	if len(rows) != 60 {
		t.Fatalf("%d rows: want 60, of 120 steps", len(rows))
	}
	for i, cells := range rows {
		var want []float64
		for _, c := range [][]cimeter.Opt[int64]{r.Trace.CPUMillicores, r.Trace.CPUMillicoresMax} {
			a, b := float64(c[2*i].Value)/1000, float64(c[2*i+1].Value)/1000
			want = append(want, min(a, b), (a+b)/2, max(a, b))
		}
		for k, v := range want {
			if got, err := strconv.ParseFloat(cells[2+k], 64); err != nil || math.Abs(got-v) > 0.00501 {
				t.Errorf("row %d says %q: want %.3f", i, cells[2:], want)
				break
			}
		}
	}
}
