package tally

import (
	"strings"
	"unicode/utf8"
)

// Other stands for every label value that found no room in the budget.
const Other = "#other#"

// maxLabelRunes bounds one label value: long enough for any project path that
// a forge allows in practice, short enough that the budget of series is also
// one of memory.
const maxLabelRunes = 200

// Labels names one stage of a project on a machine's runner. A value that is
// not known is empty; outputs leave the label out.
type Labels struct {
	CI, Project, Machine, Runner, Stage string
}

// BuildLabels names the builds of a project on a machine's runner.
type BuildLabels struct {
	CI, Project, Machine, Runner string
}

func (l Labels) bounded() Labels {
	return Labels{bounded(l.CI), bounded(l.Project), bounded(l.Machine), bounded(l.Runner), bounded(l.Stage)}
}

// fold returns the label set that stands for l when there is no room for it.
func (l Labels) fold() Labels {
	return Labels{CI: l.CI, Project: Other, Machine: l.Machine, Runner: Other, Stage: Other}
}

func (l BuildLabels) bounded() BuildLabels {
	return BuildLabels{bounded(l.CI), bounded(l.Project), bounded(l.Machine), bounded(l.Runner)}
}

func (l BuildLabels) fold() BuildLabels {
	return BuildLabels{CI: l.CI, Project: Other, Machine: l.Machine, Runner: Other}
}

// clone keeps nothing alive but the labels themselves: a value may be a part of
// a large text.
func (l Labels) clone() Labels {
	c := strings.Clone
	return Labels{c(l.CI), c(l.Project), c(l.Machine), c(l.Runner), c(l.Stage)}
}

func (l BuildLabels) clone() BuildLabels {
	c := strings.Clone
	return BuildLabels{c(l.CI), c(l.Project), c(l.Machine), c(l.Runner)}
}

// bounded returns v as valid UTF-8 of at most maxLabelRunes runes: each run of
// bytes that are not text becomes U+FFFD, what is too long is cut. It allocates
// only when it has to change v; what it cuts off is not kept alive.
func bounded(v string) string {
	if !utf8.ValidString(v) {
		v = strings.ToValidUTF8(v, "\uFFFD")
	}
	if len(v) <= maxLabelRunes {
		return v
	}
	n := 0
	for i := range v {
		if n == maxLabelRunes {
			return strings.Clone(v[:i])
		}
		n++
	}
	return v
}
