package config

import (
	"bytes"
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// source is where a setting came from.
type source struct {
	name string
	line int
}

// decoder lays YAML nodes over a struct. It goes on after a problem, so that
// all of them are found in one go.
type decoder struct {
	file     string
	problems Problems
	sources  map[string]source // path of a setting -> what gave it
}

func (d *decoder) problem(path, value, want string) {
	// A setting that is not in the file has the source of the mapping it is in.
	s, p := source{}, path
	for {
		var ok bool
		if s, ok = d.sources[p]; ok || p == "" {
			break
		}
		p = p[:max(strings.LastIndexAny(p, ".["), 0)]
	}
	d.problems = append(d.problems, Problem{Source: s.name, Line: s.line, Path: path, Value: value, Want: want})
}

func (d *decoder) at(path string, n *yaml.Node) {
	d.sources[path] = source{fmt.Sprintf("%s:%d", d.file, n.Line), n.Line}
}

var yamlLine = lazily(`^yaml: (?:line (\d+): )?`)

func (d *decoder) document(b []byte, into any) {
	dec := yaml.NewDecoder(bytes.NewReader(b))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return // no file, an empty one, or comments only
	case err != nil:
		p := Problem{Source: d.file, Want: "want YAML: " + yamlLine().ReplaceAllString(err.Error(), "")}
		if m := yamlLine().FindStringSubmatch(err.Error()); m != nil && m[1] != "" {
			p.Line, _ = strconv.Atoi(m[1])
			p.Source += ":" + m[1]
		}
		d.problems = append(d.problems, p)
		return
	}
	d.at("", doc.Content[0])
	d.node("", doc.Content[0], reflect.ValueOf(into).Elem(), "")
	var more yaml.Node
	if err := dec.Decode(&more); !errors.Is(err, io.EOF) {
		d.problem("", "", "second document: want one")
	}
}

func (d *decoder) override(o Override, into any) {
	v, tag := reflect.ValueOf(into).Elem(), reflect.StructTag("")
	for name := range strings.SplitSeq(o.Path, ".") {
		i, ok := fieldIndex(v.Type(), name)
		if !ok {
			panic("config: override of unknown setting " + o.Path) // a flag is wired wrongly
		}
		tag = v.Type().Field(i).Tag
		v = v.Field(i)
	}
	d.sources[o.Path] = source{name: o.Source}
	d.scalar(o.Path, o.Value, v, tag)
}

// node lays n over v. An empty node (key with nothing after it) leaves v as it is.
func (d *decoder) node(path string, n *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	for depth := 0; n.Kind == yaml.AliasNode; depth++ {
		if depth > 8 {
			d.problem(path, "", "alias of an alias: want a value")
			return
		}
		n = n.Alias
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return
	}
	if _, ok := v.Addr().Interface().(encoding.TextUnmarshaler); !ok {
		switch v.Kind() {
		case reflect.Struct:
			d.mapping(path, n, "a mapping", func(key string, val *yaml.Node, child string) {
				d.structField(path, child, key, val, v)
			})
			return
		case reflect.Map:
			d.mapping(path, n, "a mapping", func(key string, val *yaml.Node, child string) {
				if v.IsNil() {
					v.Set(reflect.MakeMap(v.Type()))
				}
				e := reflect.New(v.Type().Elem()).Elem()
				if val.Tag == "!!null" {
					d.problem(child, "", "nothing given: want "+kindWanted(e, ""))
					return
				}
				d.node(child, val, e, "")
				v.SetMapIndex(reflect.ValueOf(key), e)
			})
			return
		case reflect.Slice:
			d.list(path, n, v, tag)
			return
		}
	}
	if n.Kind != yaml.ScalarNode {
		d.problem(path, "", kindName(n)+": want "+kindWanted(v, tag))
		return
	}
	d.scalar(path, n.Value, v, tag)
}

func (d *decoder) mapping(path string, n *yaml.Node, want string, each func(key string, val *yaml.Node, child string)) {
	if n.Kind != yaml.MappingNode {
		value := ""
		if n.Kind == yaml.ScalarNode {
			value = shown(n.Value)
		}
		d.problem(path, value, "want "+want)
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		child := key.Value
		if path != "" {
			child = path + "." + child
		}
		if seen[key.Value] {
			d.problems = append(d.problems, Problem{
				Source: fmt.Sprintf("%s:%d", d.file, key.Line), Line: key.Line, Path: child, Want: "second time: want each key once",
			})
			continue
		}
		seen[key.Value] = true
		d.at(child, key)
		each(key.Value, val, child)
	}
}

func (d *decoder) structField(path, child, key string, val *yaml.Node, v reflect.Value) {
	i, ok := fieldIndex(v.Type(), key)
	if !ok {
		names := fieldNames(v.Type())
		want := "unknown key: want one of " + strings.Join(names, ", ")
		if n := nearest(key, names); n != "" {
			want = "unknown key: did you mean " + n + "?"
		}
		d.problem(child, "", want)
		return
	}
	d.node(child, val, v.Field(i), v.Type().Field(i).Tag)
}

func (d *decoder) list(path string, n *yaml.Node, v reflect.Value, tag reflect.StructTag) {
	if n.Kind == yaml.ScalarNode && v.Type().Elem().Kind() == reflect.String {
		d.scalar(path, n.Value, v, tag)
		return
	}
	if n.Kind != yaml.SequenceNode {
		d.problem(path, "", kindName(n)+": want "+kindWanted(v, tag))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		child := fmt.Sprintf("%s[%d]", path, i)
		d.at(child, item)
		d.node(child, item, v.Index(i), tag)
	}
}

// scalar reads text into v. Lists are split at commas, and the spaces around
// their items, which people write, do not count (google/cadvisor#3235).
func (d *decoder) scalar(path, text string, v reflect.Value, tag reflect.StructTag) {
	bad := func() { d.problem(path, shownFor(tag, text), "want "+kindWanted(v, tag)) }
	if tag.Get("auto") != "" && text == "auto" {
		v.SetZero()
		return
	}
	if u, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if err := u.UnmarshalText([]byte(text)); err != nil {
			var detail string
			if inner := errors.Unwrap(err); inner != nil {
				detail = ": " + inner.Error()
			}
			d.problem(path, shown(text), "want "+kindWanted(v, tag)+detail)
		}
		return
	}
	if v.Type() == reflect.TypeFor[time.Duration]() {
		t, err := time.ParseDuration(text)
		if err != nil {
			bad()
			return
		}
		v.SetInt(int64(t))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(strings.TrimSpace(text))
	case reflect.Bool:
		if text != "true" && text != "false" {
			bad()
			return
		}
		v.SetBool(text == "true")
	case reflect.Int:
		i, err := strconv.Atoi(text)
		if err != nil {
			bad()
			return
		}
		v.SetInt(int64(i))
	case reflect.Slice:
		items := []string{}
		for item := range strings.SplitSeq(text, ",") {
			if item = strings.TrimSpace(item); item != "" {
				items = append(items, item)
			}
		}
		v.Set(reflect.ValueOf(items))
	default:
		bad()
	}
}

// shownFor hides the part of a URL that may hold a password.
func shownFor(tag reflect.StructTag, text string) string {
	if c := tag.Get("check"); c == "url" || c == "address" || c == "docker" {
		text = withoutUser(text)
	}
	return shown(text)
}

func fieldIndex(t reflect.Type, name string) (int, bool) {
	for i := range t.NumField() {
		if n := t.Field(i).Tag.Get("yaml"); n == name && n != "" {
			return i, true
		}
	}
	return 0, false
}

func fieldNames(t reflect.Type) []string {
	var names []string
	for i := range t.NumField() {
		names = append(names, t.Field(i).Tag.Get("yaml"))
	}
	return names
}

func kindName(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return shown(n.Value)
}
