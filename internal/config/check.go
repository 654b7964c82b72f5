package config

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// check looks at every value against the tags of its field, then at what a tag
// cannot say.
func (d *decoder) check(c *Config) {
	d.walk("", reflect.ValueOf(c).Elem(), "")
	for i := range c.Agent.Rules {
		d.rule(fmt.Sprintf("agent.rules[%d]", i), &c.Agent.Rules[i])
	}
	for i := range c.Sources {
		d.source(fmt.Sprintf("sources[%d]", i), &c.Sources[i], c.Sources[:i])
	}
	d.discover(&c.Discover)
	d.ciServers(c.CIServers)
}

func (d *decoder) walk(path string, v reflect.Value, tag reflect.StructTag) {
	switch {
	case v.Type() == reflect.TypeFor[Pattern]():
		return
	case v.Kind() == reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			child := f.Tag.Get("yaml")
			if path != "" {
				child = path + "." + child
			}
			d.walk(child, v.Field(i), f.Tag)
		}
	case v.Kind() == reflect.Slice:
		if most, ok := tag.Lookup("max"); ok {
			if n, _ := strconv.Atoi(most); v.Len() > n {
				d.problem(path, fmt.Sprintf("%d entries", v.Len()), "want at most "+most)
				return
			}
		}
		for i := range v.Len() {
			d.walk(fmt.Sprintf("%s[%d]", path, i), v.Index(i), tag)
		}
	case v.Kind() == reflect.String:
		d.text(path, v.String(), tag)
	case v.CanInt():
		d.inRange(path, v, tag)
	}
}

func (d *decoder) inRange(path string, v reflect.Value, tag reflect.StructTag) {
	least, most := tag.Get("min"), tag.Get("max")
	if least == "" || tag.Get("auto") != "" && v.Int() == 0 {
		return
	}
	if n := v.Int(); n < number(least, v.Type()) || n > number(most, v.Type()) {
		d.problem(path, fmt.Sprint(v.Interface()), "want "+kindWanted(v, tag))
	}
}

// number reads a bound out of a tag of this package's own, in the unit of t.
func number(s string, t reflect.Type) int64 {
	switch t {
	case reflect.TypeFor[time.Duration]():
		d, err := time.ParseDuration(s)
		if err != nil {
			panic(err)
		}
		return int64(d)
	case reflect.TypeFor[Bytes]():
		var b Bytes
		if err := b.UnmarshalText([]byte(s)); err != nil {
			panic(err)
		}
		return int64(b)
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// kindWanted says what v accepts: the end of a sentence that starts with "want".
func kindWanted(v reflect.Value, tag reflect.StructTag) string {
	if tag.Get("oneof") != "" {
		return "one of " + strings.Join(strings.Fields(tag.Get("oneof")), ", ")
	}
	span := ""
	if tag.Get("min") != "" {
		span = tag.Get("min") + " to " + tag.Get("max")
	}
	if tag.Get("auto") != "" {
		span = "auto, or " + span
	}
	switch {
	case v.Type() == reflect.TypeFor[Pattern]():
		return "a regular expression"
	case span != "":
		return span
	case v.Kind() == reflect.Bool:
		return "true or false"
	case v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.String:
		return "a list, or values with commas between"
	case v.Kind() == reflect.Slice:
		return "a list"
	case wanted(tag.Get("check")) != "":
		return wanted(tag.Get("check"))
	}
	return "a text"
}

func wanted(check string) string {
	switch check {
	case "hostport", "optionalhostport":
		return "HOST:PORT with a port from 0 to 65535, such as :9808"
	case "path":
		return "an absolute path"
	case "url", "address":
		return "an http or https URL without user and password"
	case "optionalpath":
		return "an absolute path"
	case "docker":
		return "unix:///path or tcp://HOST:PORT"
	case "socket":
		return "unix:///path"
	case "label":
		return "at most 128 bytes of UTF-8 without control characters"
	case "variable":
		return "a name of letters, digits and underscores"
	case "target":
		return "HOST:PORT or :PORT with a port from 1 to 65535"
	case "service":
		return "a name of letters, digits and hyphens, at most 63"
	}
	if w := wantedCIServer(check); w != "" {
		return w
	}
	return wantedOutput(check)
}

var variableName = lazily(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

// text checks one string. Where no value is a choice, it passes.
func (d *decoder) text(path, s string, tag reflect.StructTag) {
	check := tag.Get("check")
	if oneof := tag.Get("oneof"); oneof != "" && !slices.Contains(strings.Fields(oneof), s) {
		d.problem(path, shown(s), "want one of "+strings.Join(strings.Fields(oneof), ", "))
		return
	}
	ok := true
	switch check {
	case "hostport", "optionalhostport":
		_, port, err := net.SplitHostPort(s)
		n, perr := strconv.ParseUint(port, 10, 16)
		ok = err == nil && perr == nil && n <= 65535 || s == "" && check == "optionalhostport"
	case "path":
		ok = strings.HasPrefix(s, "/") && !strings.Contains(s, "\x00")
	case "url":
		ok = s == "" && !strings.HasSuffix(path, "]") || validURL(s)
	case "address":
		ok = s == "" || validURL(s)
	case "optionalpath":
		ok = s == "" || strings.HasPrefix(s, "/") && !strings.Contains(s, "\x00")
	case "docker":
		ok = s == "" && !strings.HasSuffix(path, "]") || validDocker(s)
	case "socket":
		ok = strings.HasPrefix(s, "unix:///")
	case "label":
		ok = len(s) <= 128 && strings.ToValidUTF8(s, "") == s && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
	case "variable":
		ok = variableName().MatchString(s)
	case "target":
		ok = s == "" || validTarget(s)
	case "service":
		ok = serviceName().MatchString(s)
	case "project":
		ok = projectPath(s)
	case "webconfig":
		d.webConfig(path, s)
	default:
		ok = outputText(check, s)
	}
	if !ok {
		d.problem(path, shownFor(tag, s), "want "+wanted(check))
	}
}

func validURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil && u.Fragment == ""
}

func validDocker(s string) bool {
	if p, ok := strings.CutPrefix(s, "unix://"); ok {
		return strings.HasPrefix(p, "/")
	}
	if a, ok := strings.CutPrefix(s, "tcp://"); ok {
		_, port, err := net.SplitHostPort(a)
		return err == nil && port != "" && !strings.Contains(a, "@")
	}
	return false
}

// withoutUser replaces user and password of what may be a URL.
func withoutUser(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok {
		scheme, rest = "", s
	} else {
		scheme += "://"
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	if i := strings.LastIndex(authority, "@"); i >= 0 {
		return scheme + redacted + authority[i:] + tail
	}
	return s
}

// webConfig checks the modes of the exporter toolkit's file and of the key that
// it names; its contents are the toolkit's to check. Password hashes can be
// attacked at leisure by a job that reads them (threat T30).
func (d *decoder) webConfig(path, name string) {
	if name == "" {
		return
	}
	b, err := os.ReadFile(name)
	if err != nil {
		d.problem(path, shown(name), "want a readable file: "+err.Error())
		return
	}
	var web struct {
		Users map[string]string `yaml:"basic_auth_users"`
		TLS   struct {
			KeyFile string `yaml:"key_file"`
			Key     string `yaml:"key"`
		} `yaml:"tls_server_config"`
	}
	if err := yaml.Unmarshal(b, &web); err != nil {
		d.problem(path, shown(name), "want YAML of the exporter toolkit")
		return
	}
	if len(web.Users) > 0 || web.TLS.Key != "" {
		if err := private(name); err != nil {
			d.problem(path, "", err.Error())
		}
	}
	if key := web.TLS.KeyFile; key != "" {
		if !strings.HasPrefix(key, "/") {
			key = name[:strings.LastIndex(name, "/")+1] + key // the toolkit takes it from its file's directory
		}
		if err := private(key); err != nil {
			d.problem(path, "", err.Error())
		}
	}
}

var templateGroup = lazily(`\$\$|\$\{([^}]*)\}|\$\w*`)

// rule checks that a rule can match, can make a build, and that its templates
// name groups of its own patterns. What a field accepts is its consumer's to say.
func (d *decoder) rule(path string, r *Rule) {
	groups := map[string]bool{}
	add := func(p Pattern) {
		if p.Regexp == nil {
			return
		}
		for _, n := range p.SubexpNames() {
			groups[n] = n != ""
		}
	}
	for _, p := range []Pattern{r.Match.Name, r.Match.Image, r.Match.Network} {
		add(p)
	}
	for _, p := range r.Match.Labels {
		add(p)
	}
	for name, p := range r.Match.Env {
		add(p)
		if !variableName().MatchString(name) {
			d.problem(path+".match.env."+name, "", "want "+wanted("variable"))
		}
	}
	// A pattern that does not compile is given too, and has its own problem.
	given := false
	for p := range d.sources {
		m, ok := strings.CutPrefix(p, path+".match.")
		given = given || ok && m != "labels" && m != "env"
	}
	if !given {
		d.problem(path+".match", "", "nothing to match: want at least one pattern")
	}
	if r.Set["ci"] == "" && !groups["ci"] {
		d.problem(path+".set", "", "no ci: want the name of the CI system")
	}
	if cmp.Or(r.Set["number"], r.Set["group"]) == "" && !groups["number"] && !groups["group"] {
		d.problem(path+".set", "", "nothing tells one build from the next: want number or group")
	}
	for field, template := range r.Set {
		p := path + ".set." + field
		if !slices.Contains(setFields[:], field) {
			d.problem(p, "", "unknown field: want one of "+strings.Join(setFields[:], ", "))
		}
		for _, m := range templateGroup().FindAllStringSubmatch(template, -1) {
			if m[0] != "$$" && !groups[m[1]] {
				d.problem(p, shown(template), m[0]+": want ${name} of a named group of this rule's patterns, or $$ for a dollar sign")
			}
		}
	}
}
