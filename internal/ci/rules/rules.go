// Package rules tells builds from containers by rules that the operator wrote in
// the configuration file: for CI systems that cimeter does not know. It is pure.
//
// [Compile] checks and compiles the rules once; [Set.Identify] applies them. A Set
// is immutable and may be used from any goroutine.
package rules

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

// Bounds of what the configuration may hold and what a container may say.
const (
	maxRules   = 200  // a container that is none of a CI's costs a pass over all
	maxPattern = 1000 // bytes
	maxValue   = 1024 // bytes of a value that is matched, enough for a URL; a longer one matches nothing
)

// Rule says what a container must have and what its build is then.
type Rule struct {
	Name  string // for errors
	Match Match
	// Set gives fields of the build: constants, or templates in which ${group}
	// stands for a named group of a pattern and $$ for a dollar sign. A group that
	// is named like a field gives that field where Set does not.
	Set map[string]string
}

// Match holds patterns in Go's syntax of regular expressions. They match
// anywhere in a value unless anchored with ^ and $. Those that are given must all
// match; "" is not given.
type Match struct {
	Labels  map[string]string // label: pattern; a label that is not there does not match
	Env     map[string]string // variable: pattern; only these variables are read
	Name    string            // of the container
	Image   string            // as it was asked for
	Network string            // of one of its networks
}

// fields are those that a rule may set.
var fields = [...]string{
	"ci", "server", "project", "number", "name", "attempt", "pipeline", "pipeline_stage", "ref", "sha", "event", "url",
	"runner", "stage", "role", "group",
}

// Set is a list of compiled rules.
type Set struct {
	rules     []rule
	variables []string
}

type rule struct {
	labels, env          []matcher
	name, image, network *regexp.Regexp
	fields               []field
}

type matcher struct {
	key string
	re  *regexp.Regexp
}

type field struct{ name, template string }

// Compile compiles rules. Its error joins one error for each thing that is wrong,
// each of which wraps cimeter.ErrInvalid and names rule, field, value and what was wanted.
func Compile(rules []Rule) (*Set, error) {
	var s Set
	var errs []error
	if len(rules) > maxRules {
		return nil, fmt.Errorf("rules: %w: there are %d, want at most %d", cimeter.ErrInvalid, len(rules), maxRules)
	}
	names := make(map[string]bool)
	for i, in := range rules {
		c := compiler{rule: in.Name, groups: make(map[string]bool)}
		if in.Name == "" {
			c.rule = "number " + strconv.Itoa(i+1)
		} else if names[in.Name] {
			c.wrong("name", in.Name, "a name that no other rule has")
		}
		names[in.Name] = true
		s.rules = append(s.rules, c.compile(in))
		for _, m := range s.rules[i].env {
			if !slices.Contains(s.variables, m.key) {
				s.variables = append(s.variables, m.key)
			}
		}
		errs = append(errs, c.errs...)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &s, nil
}

// Variables returns the environment variables that the rules name, in the order of
// the rules. None of them looks like a secret: [Compile] refuses those.
func (s *Set) Variables() []string { return slices.Clone(s.variables) }

// compiler compiles one rule and gathers what is wrong with it.
type compiler struct {
	rule   string
	groups map[string]bool
	errs   []error
}

func (c *compiler) wrong(field, value, wanted string) {
	c.errs = append(c.errs, fmt.Errorf("rule %s: %s: %w: %s, want %s", c.rule, field, cimeter.ErrInvalid, ci.Quote(value), wanted))
}

func (c *compiler) compile(in Rule) (r rule) {
	for _, key := range slices.Sorted(maps.Keys(in.Match.Labels)) {
		r.labels = append(r.labels, matcher{key, c.pattern("match.labels."+key, in.Match.Labels[key])})
	}
	for _, key := range slices.Sorted(maps.Keys(in.Match.Env)) {
		if NamesSecret(key) {
			c.wrong("match.env", key, "a variable whose name is not that of a secret")
		}
		r.env = append(r.env, matcher{key, c.pattern("match.env."+key, in.Match.Env[key])})
	}
	r.name = c.optional("match.name", in.Match.Name)
	r.image = c.optional("match.image", in.Match.Image)
	r.network = c.optional("match.network", in.Match.Network)
	if len(r.labels)+len(r.env) == 0 && r.name == nil && r.image == nil && r.network == nil && len(c.errs) == 0 {
		c.wrong("match", "", "at least one pattern")
	}
	for _, name := range slices.Sorted(maps.Keys(in.Set)) {
		c.template(name, in.Set[name])
		r.fields = append(r.fields, field{name, in.Set[name]})
	}
	c.known(in)
	return r
}

// known checks that the rule gives what every build must have, and constants of
// fields that take only some values.
func (c *compiler) known(in Rule) {
	if in.Set["ci"] == "" && !c.groups["ci"] {
		c.wrong("set.ci", "", "the name of the CI system")
	}
	if v := in.Set["ci"]; v != "" && !strings.Contains(v, "$") && !ciName(v) {
		c.wrong("set.ci", v, "at most 40 lower-case letters, digits, - and _")
	}
	if v := in.Set["role"]; v != "" && !strings.Contains(v, "$") && !isRole(v) {
		c.wrong("set.role", v, "build, helper, service, cache or wait")
	}
	if in.Set["number"] == "" && in.Set["group"] == "" && !c.groups["number"] && !c.groups["group"] {
		c.wrong("set", "", "number or group: nothing else tells one build from the next")
	}
}

func (c *compiler) optional(field, pattern string) *regexp.Regexp {
	if pattern == "" {
		return nil
	}
	return c.pattern(field, pattern)
}

func (c *compiler) pattern(field, pattern string) *regexp.Regexp {
	if len(pattern) > maxPattern {
		c.wrong(field, pattern, fmt.Sprintf("at most %d bytes", maxPattern))
		return nil
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		c.wrong(field, pattern, "a regular expression")
		return nil
	}
	for _, g := range re.SubexpNames() {
		if g == "" {
			continue
		}
		if c.groups[g] {
			c.wrong(field, pattern, "group "+g+" in one pattern only")
		}
		c.groups[g] = true
	}
	return re
}

// template checks a value of Set: its name, and that each ${group} is there.
func (c *compiler) template(name, template string) {
	if !slices.Contains(fields[:], name) {
		c.wrong("set", name, "one of "+strings.Join(fields[:], ", "))
	}
	expand(template, func(group string) string {
		if !c.groups[group] {
			c.wrong("set."+name, template, "groups that a pattern of the rule has, which "+ci.Quote(group)+" is not")
		}
		return ""
	})
}

// NamesSecret reports whether a variable's name looks like that of a secret.
func NamesSecret(name string) bool {
	name = strings.ToUpper(name)
	for _, word := range []string{"TOKEN", "SECRET", "PASSW", "PASSPHRASE", "CREDENTIAL", "PRIVATE", "API_KEY", "APIKEY", "ACCESS_KEY", "NETRC", "_AUTH"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return strings.HasSuffix(name, "_KEY") || strings.HasSuffix(name, "_SCRIPT")
}

func ciName(s string) bool {
	for i := range len(s) {
		if b := s[i]; (b < 'a' || b > 'z') && (b < '0' || b > '9') && b != '-' && b != '_' {
			return false
		}
	}
	return s != "" && len(s) <= 40
}

func isRole(s string) bool {
	switch cimeter.Role(s) {
	case cimeter.RoleBuild, cimeter.RoleHelper, cimeter.RoleService, cimeter.RoleCache, cimeter.RoleWait:
		return true
	}
	return false
}
