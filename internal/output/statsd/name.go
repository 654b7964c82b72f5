package statsd

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/series"
)

const (
	defaultName = "${name}.${labels}"
	// The fields of a template that are no labels.
	fieldName   = "name"
	fieldLabels = "labels"
	fieldValues = "values"
)

// template makes names: texts and fields in turn, beginning with a text.
type template struct{ texts, fields []string }

// parseTemplate reads a template. The error is [cimeter.ErrInvalid].
func parseTemplate(s string) (template, error) {
	var t template
	for rest := s; ; {
		text, after, ok := strings.Cut(rest, "${")
		if strings.ContainsFunc(text, func(r rune) bool { return r >= 0x80 || !plain(byte(r)) && r != '.' }) {
			return template{}, fmt.Errorf("name template %q: %q: want letters, digits and . _ -: %w", s, text, cimeter.ErrInvalid)
		}
		t.texts = append(t.texts, text)
		if !ok {
			break
		}
		field, after, ok := strings.Cut(after, "}")
		if !ok || field == "" {
			return template{}, fmt.Errorf("name template %q: want ${FIELD}: %w", s, cimeter.ErrInvalid)
		}
		t.fields, rest = append(t.fields, field), after
	}
	if !slices.Contains(t.fields, fieldName) {
		return template{}, fmt.Errorf("name template %q: want ${name} in it: %w", s, cimeter.ErrInvalid)
	}
	return t, nil
}

// name returns the name of a series: of letters, digits, dots, underscores and
// dashes, with no empty part between two dots.
func (t *template) name(metric string, labels []series.Label) string {
	b := make([]byte, 0, 128)
	for i, text := range t.texts {
		b = append(b, text...)
		if i == len(t.fields) {
			break
		}
		switch field := t.fields[i]; field {
		case fieldName:
			b = appendMetric(b, metric)
		case fieldLabels, fieldValues:
			for _, l := range labels {
				if slices.Contains(t.fields, l.Name) {
					continue
				}
				b = append(b, '.')
				if field == fieldLabels {
					b = append(appendPart(b, l.Name), '.')
				}
				b = appendPart(b, l.Value)
			}
		default:
			for _, l := range labels {
				if l.Name == field {
					b = appendPart(b, l.Value)
				}
			}
		}
	}
	return string(squeeze(b))
}

// squeeze takes out dots that have nothing before or behind them.
func squeeze(b []byte) []byte {
	out := b[:0]
	for _, c := range b {
		if c == '.' && (len(out) == 0 || out[len(out)-1] == '.') {
			continue
		}
		out = append(out, c)
	}
	if n := len(out); n > 0 && out[n-1] == '.' {
		out = out[:n-1]
	}
	return out
}

// appendMetric appends a metric's own name, whose dots stay.
func appendMetric(b []byte, name string) []byte {
	for i, part := range strings.Split(name, ".") {
		if i > 0 {
			b = append(b, '.')
		}
		b = appendPart(b, part)
	}
	return b
}

// appendPart appends one part of a name. What a receiver may take for something
// else becomes an underscore. Text in other scripts than ours would then all look
// the same, so a digest of it stands behind.
func appendPart(b []byte, s string) []byte {
	lossy := false
	for _, r := range s {
		if r < 0x80 && plain(byte(r)) {
			b = append(b, byte(r))
			continue
		}
		lossy = lossy || r < 0x20 || r >= 0x7f
		b = append(b, '_')
	}
	if lossy {
		h := fnv.New32a()
		h.Write([]byte(s))
		b = fmt.Appendf(b, "_%08x", h.Sum32())
	}
	return b
}

func plain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// dialect of DogStatsD: what stands before names and behind values.
type dog struct {
	prefix string
	tags   []string // of every metric, each NAME or NAME:VALUE, fit to be sent
	origin string
}

// tail returns what stands behind the type of a series: its tags, if any, and
// where it comes from.
func (d *dog) tail(labels []series.Label) string {
	var b []byte
	add := func() {
		if len(b) == 0 {
			b = append(b, "|#"...)
		} else {
			b = append(b, ',')
		}
	}
	for _, l := range labels {
		add()
		b = append(appendTag(b, l.Name, true), ':')
		b = appendTag(b, l.Value, false)
	}
	for _, tag := range d.tags {
		name, _, _ := strings.Cut(tag, ":")
		if !slices.ContainsFunc(labels, func(l series.Label) bool { return string(appendTag(nil, l.Name, true)) == name }) {
			add()
			b = append(b, tag...)
		}
	}
	return string(b) + d.origin
}

// appendTag appends the name or the value of a tag. A value may have colons: the
// first one ends the name.
func appendTag(b []byte, s string, name bool) []byte {
	for _, r := range strings.ToValidUTF8(s, "_") {
		switch {
		case r < 0x20, r == 0x7f, r == ',', r == '|', r == '#', r == ':' && name, 0x80 <= r && r < 0xa0, r == 0x2028, r == 0x2029:
			b = append(b, '_')
		default:
			b = append(b, string(r)...)
		}
	}
	return b
}

// newDog checks what the operator gives. The error is [cimeter.ErrInvalid].
func newDog(o DogOptions) (*dog, error) {
	d := &dog{prefix: o.Prefix}
	if string(appendMetric(nil, o.Prefix)) != o.Prefix {
		return nil, fmt.Errorf("prefix %q: want letters, digits and . _ -: %w", o.Prefix, cimeter.ErrInvalid)
	}
	for _, tag := range o.Tags {
		name, value, ok := strings.Cut(tag, ":")
		clean := appendTag(nil, name, true)
		if ok {
			clean = appendTag(append(clean, ':'), value, false)
		}
		if name == "" || string(clean) != tag {
			return nil, fmt.Errorf("tag %q: want NAME or NAME:VALUE without commas, bars and line breaks: %w", tag, cimeter.ErrInvalid)
		}
		if !slices.Contains(d.tags, tag) {
			d.tags = append(d.tags, tag)
		}
	}
	for _, f := range []struct{ field, what, value string }{
		{"|c:", "container id", o.Origin.ContainerID},
		{"|e:", "external data", o.Origin.ExternalData},
		{"|card:", "cardinality", o.Origin.Cardinality},
	} {
		if strings.ContainsFunc(f.value, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '|' }) {
			return nil, fmt.Errorf("%s: want printable ASCII without a bar: %w", f.what, cimeter.ErrInvalid)
		}
		if f.value != "" {
			d.origin += f.field + f.value
		}
	}
	if c := o.Origin.Cardinality; c != "" && !slices.Contains([]string{"none", "low", "orchestrator", "high"}, c) {
		return nil, fmt.Errorf("cardinality %q: want none, low, orchestrator or high: %w", c, cimeter.ErrInvalid)
	}
	return d, nil
}
