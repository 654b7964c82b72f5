package web_test

import (
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/webtest"
)

var laneBlock = regexp.MustCompile(`aria-label="([^",]+),[^"]*" data-from="([^"]+)"`)

// starts are where the stages of A's and of B's lane begin.
func starts(t *testing.T, body string) (sides [2]map[string]string) {
	t.Helper()
	for i, side := range []string{"Stages of A", "Stages of B"} {
		_, lane, ok := strings.Cut(body, `aria-label="`+side+`"`)
		if !ok {
			t.Fatalf("no %s", side)
		}
		lane, _, _ = strings.Cut(lane, "<svg class=\"lane\"")
		sides[i] = map[string]string{}
		for _, m := range laneBlock.FindAllStringSubmatch(lane, -1) {
			sides[i][m[1]] = m[2]
		}
	}
	return sides
}

// Stage by stage, what both builds have begins at one place in the lanes and in the
// trace; a stage that one has alone stands alone.
func TestCompare_align(t *testing.T) {
	a, b := webtest.Make(8001, webtest.Now.Add(-3e12), 0.5), webtest.Example()
	b.Stages = b.Stages[:len(b.Stages)-2] // without the last of its own
	h := pages(t, &webtest.Memory{Records: []*cimeter.Record{a, b}})
	target := "a=" + url.QueryEscape(a.Key) + "&b=" + url.QueryEscape(b.Key)
	_, body := get(t, h, "/compare?"+target)
	wants(t, body, `align=stages`, `aria-current="true">from the start</a>`)
	apart := starts(t, body)
	if apart[0]["step_script"] == apart[1]["step_script"] {
		t.Fatal("from the start the two begin their script at one time: nothing is shown")
	}
	code, body := get(t, h, "/compare?align=stages&"+target)
	if code != http.StatusOK {
		t.Fatalf("got %d", code)
	}
	wants(t, body, `aria-current="true">stage by stage</a>`, "Each stage of the two begins at the same place", "/trace?a=", "align=stages")
	lacks(t, body, "NaN")
	same := starts(t, body)
	for name, at := range same[1] {
		x, err1 := strconv.ParseFloat(same[0][name], 64)
		y, err2 := strconv.ParseFloat(at, 64)
		if err1 != nil || err2 != nil || math.Abs(x-y) > 0.001 {
			t.Errorf("%s begins at %s and at %s", name, same[0][name], at)
		}
	}
	if len(same[0]) <= len(same[1]) || len(same[1]) < 4 {
		t.Errorf("A has %v, B %v", same[0], same[1])
	}
	// The trace has the readings of each stage where the lanes have the stage: as much
	// CPU as without, and nothing while the shorter of the two is over.
	var whole, aligned struct {
		Step float64
		To   float64
		CPU  [2][]*float64
	}
	for query, to := range map[string]any{"?": &whole, "?align=stages&": &aligned} {
		_, doc := get(t, h, "/trace"+query+target)
		if err := json.Unmarshal([]byte(doc), to); err != nil {
			t.Fatal(err)
		}
	}
	sum := func(vs []*float64, step float64) (sum float64, gaps int) {
		for _, v := range vs {
			if v == nil {
				gaps++
			} else {
				sum += *v * step / 1000
			}
		}
		return sum, gaps
	}
	for side := range 2 {
		before, _ := sum(whole.CPU[side], whole.Step)
		after, gaps := sum(aligned.CPU[side], aligned.Step)
		if after < 0.93*before || after > 1.07*before {
			t.Errorf("side %d: %.1f s CPU stage by stage: want %.1f", side, after, before)
		}
		if side == 0 && gaps < 20 {
			t.Errorf("the shorter has %d gaps", gaps)
		}
	}
	if aligned.To < whole.To {
		t.Errorf("ends at %.1f: want at least %.1f", aligned.To, whole.To)
	}
	// Builds without a stage in common have no such view.
	c := webtest.Single()
	h = pages(t, &webtest.Memory{Records: []*cimeter.Record{a, c}})
	_, body = get(t, h, "/compare?align=stages&a="+url.QueryEscape(a.Key)+"&b="+url.QueryEscape(c.Key))
	lacks(t, body, "stage by stage", "Each stage of the two")
}
