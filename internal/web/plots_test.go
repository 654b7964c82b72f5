package web_test

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/webtest"
)

// What stages know is drawn in place of the trace where it is asked for, and nowhere else;
// what no stage knows is not offered.
func TestBuild_kinds(t *testing.T) {
	h := pages(t, &webtest.Memory{Records: []*cimeter.Record{webtest.Example(), webtest.Absent()}})
	_, body := get(t, h, key(webtest.Example()))
	wants(t, body, `?mem=kinds#mem">By kind</a>`, `?disk=ops#disk">Operations</a>`, "working set")
	lacks(t, body, "mean of each stage")
	_, body = get(t, h, key(webtest.Example())+"?mem=kinds&disk=ops&table=disk")
	wants(t, body, "Memory by kind", "files and kernel", "Disk operations <small>/s</small> <small>mean of each stage</small>", ">Total over time</a>", ">Bytes</a>", "<th scope=\"col\" class=\"n\">read avg, /s</th>", `<td class="n">51.0</td>`,
		`data-trace="/trace/gitlab/gitlab.example.com/4242?disk=ops&amp;mem=kinds"`)
	lacks(t, body, "peak 2.41", "NaN", "swap")
	// In the first step more was written than read; what is written goes down from zero.
	var tops [2]float64
	for i, class := range []string{"disk", "disk dash"} {
		if m := regexp.MustCompile(`class="line ` + class + `" d="M[0-9.]+ ([0-9.]+)L`).FindStringSubmatch(body); m != nil {
			tops[i], _ = strconv.ParseFloat(m[1], 64)
		}
	}
	if tops[0] <= 0 || tops[1] <= tops[0] {
		t.Errorf("lines begin at heights %v from the top: want the second below", tops)
	}
	_, body = get(t, h, key(webtest.Absent())+"?mem=kinds&disk=ops")
	wants(t, body, "Memory over time was not read")
	lacks(t, body, "By kind", "by kind", "perations</a>", "NaN")
	// Of a build that swaps, that too; a stage that says nothing is a gap and no zero.
	r := webtest.Example()
	r.Stages[3].Usage.MemorySwapBytes = &cimeter.Stat{Avg: 5 << 20, Max: 9 << 20}
	r.Stages[5].Usage.MemoryAnonBytes, r.Stages = nil, r.Stages[:7]
	h = pages(t, &webtest.Memory{Records: []*cimeter.Record{r}})
	_, body = get(t, h, key(r)+"?mem=kinds")
	wants(t, body, `<path class="line mem dot"`, "</svg>swap <output>")
	_, body = get(t, h, "/trace/gitlab/gitlab.example.com/4242?mem=kinds")
	if swaps := regexp.MustCompile(`"mem":\[\[.*?\],\[.*?\],\[(.*?)\]\]`).FindStringSubmatch(body); swaps == nil || !strings.Contains(swaps[1], "null,5120,5120") && !strings.Contains(swaps[1], ",5120,5120") || !strings.HasSuffix(swaps[1], "null") {
		t.Errorf("swap is %q", swaps)
	}
	if anons := regexp.MustCompile(`"mem":\[\[(.*?)\]`).FindStringSubmatch(body); anons == nil || strings.Count(anons[1], "null") < 8 || strings.Contains(anons[1], ",0,") {
		t.Errorf("anonymous memory is %q: want gaps where archive_cache ran", anons)
	}
}

// The charts of a comparison can be read as tables, of which the rows are of both.
func TestCompare_table(t *testing.T) {
	path := "/compare?a=" + url.QueryEscape(webtest.OOM().Key) + "&b=" + url.QueryEscape(webtest.Example().Key)
	_, body := get(t, pages(t, fleet()), path)
	wants(t, body, `table=cpu#cpu">Show as table</a>`)
	lacks(t, body, "trace-table")
	_, body = get(t, pages(t, fleet()), path+"&table=cpu&tpage=3")
	wants(t, body, `aria-details="trace-table"`, "A avg, cores", "B max, cores", ">Hide the table</a>", "table=cpu&amp;tpage=2#cpu", `<td class="n">4:14</td><td class="n">–</td>`)
}

// Each of several CI servers has a line of its waits, up to as many as can be told apart.
func TestQueue_waits(t *testing.T) {
	st := webtest.Queue()
	line := regexp.MustCompile(`</svg>([a-z]+\.example\.com) <b>`)
	names := func(body string) (ns []string) {
		for _, m := range line.FindAllStringSubmatch(body, -1) {
			ns = append(ns, m[1])
		}
		return ns
	}
	_, body := queuePage(t, st, "/queue")
	if got := names(body); len(got) != 2 {
		t.Errorf("lines of %q: want one of each server", got)
	}
	wants(t, body, "95 % of those that waited did so for less than <small>s</small>", "each has its line")
	for i := range 7 { // each waits longer than the one before
		s := st.Servers[0]
		s.Name = fmt.Sprintf("%c.example.com", 'a'+i)
		s.History = append([]queue.Point(nil), s.History...)
		for j := range s.History {
			s.History[j].P95 = float32(3000 + 100*i)
		}
		st.Servers = append(st.Servers, s)
	}
	_, body = queuePage(t, st, "/queue")
	if got := strings.Join(names(body), " "); got != "g.example.com f.example.com e.example.com d.example.com" {
		t.Errorf("lines of %q: want the longest waits first", got)
	}
	wants(t, body, "the 4 CI servers where they were longest; 5 more waited less")
	if n := len(element.FindAllString(body, -1)); n > 1500 {
		t.Errorf("%d elements: want at most 1,500", n)
	}
}

// many is a job with n builds over the last 30 days, of which those after the first half
// took more CPU and had another limit of memory.
func many(n int) *webtest.Memory {
	m := &webtest.Memory{}
	like := webtest.Example()
	for i := range n {
		r := *like
		r.Key, r.Number, r.Trace, r.Verdicts, r.Name = fmt.Sprintf("gitlab/gitlab.example.com/%d", 10000+i), fmt.Sprint(10000+i), nil, nil, "many"
		r.StartedAt = webtest.Now.Add(-time.Duration(i)*29*24*time.Hour/time.Duration(n) - time.Hour)
		r.EndedAt = r.StartedAt.Add(time.Duration(253+i%7) * time.Second)
		r.Usage.CPUSeconds.Total.Value *= 1 + 0.01*float64(i%7)
		r.Usage.WallSeconds = r.EndedAt.Sub(r.StartedAt).Seconds()
		if i > 50 {
			r.Usage.CPUSeconds.Total.Value *= 0.5
			r.Limits = &cimeter.Limits{CPUCores: like.Limits.CPUCores, MemoryBytes: cimeter.Some[uint64](8 << 30)}
		}
		m.Records = append(m.Records, &r)
	}
	return m
}

// A few builds have a dot each, very many a band with a table; what changed for good is
// marked where it began.
func TestJob_trends(t *testing.T) {
	const path = "/job?project=group%2Fapp&name=many"
	_, body := get(t, pages(t, many(300)), path)
	wants(t, body, "A dot is a build", `<line class="mark more" x1="`, `5" y="12">▲ 100 %</text>`, "over 69 builds before, ", "over 51 since", ">limit 4.00 GiB</text>", "memory limit 8.00 GiB → 4.00 GiB since Nov 25", "a=gitlab%2Fgitlab.example.com%2F10051&amp;b=gitlab%2Fgitlab.example.com%2F10050", `data-brush="`)
	if n := strings.Count(body, `class="mark `); n != 4 { // a line and a text of each
		t.Errorf("%d marks of CPU: want one", n/2)
	}
	lacks(t, body, "trends-t", "NaN")
	_, body = get(t, pages(t, many(590)), path)
	wants(t, body, "Of 590 builds: the line is the median of each day", `aria-details="trends-t"`, `<path class="line dash cpu" d="M`, `<path class="fill mem" d="M`)
	lacks(t, body, `class="dots`, "NaN", "the latest")
	table := body[strings.Index(body, `id="trends-t"`):]
	if rows := strings.Count(table[:strings.Index(table, "</table>")], "<tr><td>"); rows != 31 {
		t.Errorf("%d rows: want 31 days", rows)
	}
	wants(t, table, `<td class="n">20</td><td class="n">202.0</td><td class="n">207.9</td>`)
	_, body = get(t, pages(t, many(1500)), path)
	wants(t, body, "Of 1,500 builds", "Of all refs: no record tells which branch is the default one.")
	_, body = get(t, pages(t, many(1500)), "/project?name=group%2Fapp")
	wants(t, body, "Of 1,500 builds", "Of all refs: no record tells")
	_, body = get(t, pages(t, many(1500)), path+"&from=2026-11-20&to=2026-11-22T00:00")
	wants(t, body, "A dot is a build", fmt.Sprintf(`data-brush="%d %d"`, time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC).Unix(), time.Date(2026, 11, 22, 0, 0, 1, 0, time.UTC).Unix()), `from=2026-11-20&amp;`)
}

// The jobs of a project have their percentiles, peaks against limits and whether they
// cost more than a week before.
func TestProject_jobs(t *testing.T) {
	m := many(300) // about ten a day; the latest 50, of five days, cost four times as much
	for _, r := range m.Records[51:] {
		r.Usage.CPUSeconds.Total.Value *= 0.5
	}
	m.Records[0].Result, m.Records[0].Verdicts = "canceled", []cimeter.Verdict{{Kind: "oom"}}
	m.Records[1].Verdicts = []cimeter.Verdict{{Kind: "oom"}}
	_, body := get(t, pages(t, m), "/project?name=group%2Fapp")
	wants(t, body, `>95 % under <small>s</small></th>`, `<td class="n">256.0</td><td class="n">259.0</td><td class="n">77 %</td><td class="n"><span class="change more">▲ 292 %<span class="hidden"> more</span></span></td><td class="n">1 of 299</td>`)
	lacks(t, body, "mean time")
	_, body = get(t, pages(t, m), "/project?name=group%2Fapp&t=24h") // too few to compare
	wants(t, body, `<td class="n"><span class="change ">–</span></td>`)
}
