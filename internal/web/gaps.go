package web

import (
	"fmt"
	"strings"

	"github.com/cimeter/cimeter"
)

// gaps tells what was not seen, and how the rest was measured.
func (v *buildView) gaps(r *cimeter.Record) {
	for _, g := range r.Gaps {
		row := gapRow{From: "before it was seen", To: dash}
		if !g.From.IsZero() {
			row.From = clock(g.From.Sub(r.StartedAt).Seconds())
		}
		if !g.To.IsZero() {
			row.To = clock(g.To.Sub(r.StartedAt).Seconds())
		}
		row.Reason, row.Hides = gapWords(g.Reason)
		v.Gaps = append(v.Gaps, row)
	}
	v.GapsOpen = !r.Complete && !v.Running
	sources := map[cimeter.Boundary]int{}
	for _, s := range r.Stages {
		sources[s.Boundary]++
	}
	var words []string
	for _, b := range []cimeter.Boundary{cimeter.BoundaryContainer, cimeter.BoundaryJobList, cimeter.BoundaryCommand, cimeter.BoundaryTrace, cimeter.BoundaryOrder} {
		if n := sources[b]; n > 0 {
			words = append(words, fmt.Sprintf("%d by %s", n, boundaryOf(b).Word))
		}
	}
	if len(words) > 0 {
		v.About = append(v.About, fact{Label: "bounds of stages", Link: link{Text: strings.Join(words, ", ")}})
	}
	if r.Trace != nil && r.Trace.StepSeconds > 0 {
		v.About = append(v.About, fact{Label: "steps of the charts", Link: link{Text: seconds(r.Trace.StepSeconds)}})
	}
	v.About = append(v.About, fact{Label: "key", Link: link{Text: title(r.Key)}})
}

// gapWords are a gap's reason and what it may hide.
func gapWords(reason string) (why, hides string) {
	switch reason {
	case cimeter.GapBeforeAgent:
		return "it ran before the agent did", "what it spent until then is not in the totals"
	case cimeter.GapAgentRestart:
		return "the agent was away", "nothing of the totals; the shape over time"
	case cimeter.GapMissedEnd:
		return "its last reading came before its last process was gone", "what it spent at the very end"
	case cimeter.GapLongInterval:
		return "readings were far apart: the machine slept or the agent was starved", "maxima and the shape over time"
	case cimeter.GapMissedSegment:
		return "a container was gone before its counters could be read", "all that this container spent"
	case cimeter.GapNoCgroup:
		return "its engine gives its containers no cgroup of their own", "all that this container spent"
	}
	return name(reason), dash
}

// boundary is the source of a stage's bounds, as a mark and a word.
type boundary struct{ Mark, Word, Title string }

func boundaryOf(b cimeter.Boundary) boundary {
	switch b {
	case cimeter.BoundaryContainer:
		return boundary{"▣", "container", "the container's own labels and life"}
	case cimeter.BoundaryJobList:
		return boundary{"☰", "job list", "the runner's live list of jobs"}
	case cimeter.BoundaryCommand:
		return boundary{"❯", "command", "command lines of its processes"}
	case cimeter.BoundaryTrace:
		return boundary{"§", "log section", "sections of the job's log"}
	case cimeter.BoundaryOrder:
		return boundary{"≈", "order", "the order in which the runner runs its stages"}
	}
	return boundary{"?", name(string(b)), ""}
}
