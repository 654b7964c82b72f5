package ci

import (
	"strings"
	"unicode/utf8"

	"github.com/cimeter/cimeter"
)

// Bounds of an identity, in bytes. GitLab's project paths end at 255 characters
// and its job names as well; a key percent-encodes up to three bytes for one.
const (
	maxKey   = 2048
	maxField = 512
)

// bound cuts each value of id that is longer than maxField, between characters.
func bound(id *cimeter.Identity) {
	b := &id.Build
	for _, f := range [...]*string{
		&b.Server, &b.Project, &b.Number, &b.Name, &b.Pipeline, &b.PipelineStage, &b.Ref, &b.DefaultBranch, &b.SHA, &b.Event,
		&b.Runner.ID, &b.Runner.ShortToken, &b.Runner.Name, &id.Stage, &id.Group, &id.Doubt,
	} {
		*f = cut(*f)
	}
	if len(b.URL) > maxKey {
		b.URL = ""
	}
}

func cut(s string) string {
	if len(s) <= maxField {
		return s
	}
	n := maxField
	for n > maxField-utf8.UTFMax && !utf8.RuneStart(s[n]) {
		n--
	}
	return strings.Clone(s[:n]) // does not hold on to the rest
}
