package rules

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// Identify applies the rules in order; the first whose patterns all match says
// which build the container belongs to.
//
// The key is made of ci, server, project, number and name, or of the group where
// no number is known. A container of which neither is known stands for a build of
// its own, so that two builds never share a key. A role that is not known is build, a
// service runs alongside, and a value that does not fit its field (an attempt that is
// no number, a URL that is none) is left out.
func (s *Set) Identify(c *cimeter.Container) (id cimeter.Identity, ok bool) {
	for i := range s.rules {
		if f, ok := s.rules[i].match(c); ok && ciName(f["ci"]) {
			return identity(c, f), true
		}
	}
	return cimeter.Identity{}, false
}

// match returns the fields that the rule finds in c.
func (r *rule) match(c *cimeter.Container) (f map[string]string, ok bool) {
	f = make(map[string]string)
	for _, m := range r.labels {
		if v, ok := c.Labels[m.key]; !ok || !capture(m.re, v, f) {
			return nil, false
		}
	}
	for _, m := range r.env {
		if v, ok := c.Env[m.key]; !ok || !capture(m.re, v, f) {
			return nil, false
		}
	}
	if r.name != nil && !capture(r.name, c.Name, f) || r.image != nil && !capture(r.image, c.Image, f) {
		return nil, false
	}
	if r.network != nil && ci.Network(c, func(name string) bool { return capture(r.network, name, f) }) == "" {
		return nil, false
	}
	composed := make(map[string]string, len(r.fields))
	for _, t := range r.fields {
		composed[t.name] = expand(t.template, func(group string) string { return f[group] })
	}
	for name, value := range composed {
		f[name] = value
	}
	return f, true
}

// capture matches v and puts the named groups that took part into f.
func capture(re *regexp.Regexp, v string, f map[string]string) bool {
	if len(v) > maxValue {
		return false
	}
	m := re.FindStringSubmatch(v)
	if m == nil {
		return false
	}
	for i, g := range re.SubexpNames() {
		if g != "" && m[i] != "" {
			f[g] = m[i]
		}
	}
	return true
}

func identity(c *cimeter.Container, f map[string]string) (id cimeter.Identity) {
	id.Build = cimeter.Build{
		CI:            f["ci"],
		Server:        strings.ToLower(f["server"][strings.LastIndexByte(f["server"], '@')+1:]), // never with a user name
		Project:       f["project"],
		Number:        f["number"],
		Name:          f["name"],
		Pipeline:      f["pipeline"],
		PipelineStage: f["pipeline_stage"],
		Ref:           f["ref"],
		SHA:           f["sha"],
		Event:         f["event"],
		URL:           ci.PageOf(f["url"]),
		Runner:        cimeter.Runner{Name: f["runner"]},
	}
	if n, err := strconv.Atoi(f["attempt"]); err == nil && n > 0 {
		id.Build.Attempt = n
	}
	b := id.Build
	switch {
	case b.Number != "":
		id.Build.Key = cimeter.BuildKey(b.CI, b.Server, b.Project, b.Number, b.Name)
	case f["group"] != "":
		id.Build.Key = cimeter.BuildKey(b.CI, ci.Local, f["group"])
	default:
		id.Build.Key = cimeter.BuildKey(b.CI, ci.Local, c.ID)
	}
	id.Role = cimeter.RoleBuild
	if isRole(f["role"]) {
		id.Role = cimeter.Role(f["role"])
	}
	id.Stage = f["stage"]
	id.Alongside = id.Role == cimeter.RoleService
	id.Group = f["group"]
	return id
}

// expand replaces each ${group} in a template by what value returns for it,
// and $$ by a dollar sign. A dollar sign before anything else stays.
func expand(template string, value func(group string) string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(template, "$")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		group, rest, closed := strings.Cut(strings.TrimPrefix(after, "{"), "}")
		switch {
		case strings.HasPrefix(after, "$"):
			b.WriteByte('$')
			template = after[1:]
		case strings.HasPrefix(after, "{") && closed:
			b.WriteString(value(group))
			template = rest
		default:
			b.WriteByte('$')
			template = after
		}
	}
}
