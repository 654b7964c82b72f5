package prometheus

import (
	"strconv"
	"strings"
)

// Format is a form of a page of metrics.
type Format uint8

// The formats.
const (
	Text        Format = iota // Prometheus text 0.0.4 (1.0.0 differs only for names that we do not have)
	OpenMetrics               // OpenMetrics text, 1.0.0 and 0.0.1 alike: with exemplars
	Protobuf                  // delimited io.prometheus.client.MetricFamily: with exemplars and native histograms
)

// offer is a content type that Negotiate can answer with.
type offer struct {
	format         Format
	media, version string
}

// offers returns what can be served, best first where a client has no
// preference.
func offers() [5]offer {
	return [5]offer{
		{OpenMetrics, "application/openmetrics-text", "1.0.0"},
		{OpenMetrics, "application/openmetrics-text", "0.0.1"},
		{Text, "text/plain", "0.0.4"},
		{Text, "text/plain", "1.0.0"},
		{Protobuf, protobufMedia, ""},
	}
}

const (
	protobufMedia = "application/vnd.google.protobuf"
	protobufProto = "io.prometheus.client.MetricFamily"
)

func (o offer) contentType(escaping string) string {
	if o.format == Protobuf {
		return o.media + "; proto=" + protobufProto + "; encoding=delimited; escaping=" + escaping
	}
	return o.media + "; version=" + o.version + "; charset=utf-8; escaping=" + escaping
}

// clause is one part of an Accept header between commas.
type clause struct {
	media, version, escaping string
	proto, encoding          string // of protobuf
	q                        float64
}

// Negotiate returns the format for an Accept header, and its Content-Type. It
// chooses as Prometheus's own exporters do (prometheus/common v0.74.0,
// expfmt.NegotiateAccept): the clause with the highest q that names a media
// type and version we have, more specific before wildcard, then the first one;
// text 0.0.4 when there is none. Unlike it, a clause with q=0 is not acceptable
// (RFC 9110, 12.4.2).
func Negotiate(accept string) (Format, string) {
	offered := offers()
	best, bestClause := offered[2], clause{q: -1}
	for part := range strings.SplitSeq(accept, ",") {
		c, ok := parseClause(part)
		if !ok || !c.before(bestClause) {
			continue
		}
		for _, o := range offered {
			if c.matches(o) {
				best, bestClause = o, c
				break
			}
		}
	}
	switch bestClause.escaping {
	case "allow-utf-8", "dots", "values":
		return best.format, best.contentType(bestClause.escaping)
	}
	return best.format, best.contentType("underscores")
}

// before reports whether c wins over the clause found so far.
func (c clause) before(o clause) bool {
	if c.q != o.q {
		return c.q > o.q
	}
	return c.wildcards() < o.wildcards()
}

func (c clause) wildcards() int { return strings.Count(c.media, "*") }

func (c clause) matches(o offer) bool {
	typ, sub, _ := strings.Cut(c.media, "/")
	wantType, wantSub, _ := strings.Cut(o.media, "/")
	if (typ != "*" && typ != wantType) || (sub != "*" && sub != wantSub) {
		return false
	}
	if o.format == Protobuf {
		// A wildcard is no wish for bytes that a person cannot read.
		return c.media == protobufMedia && c.proto == protobufProto && c.encoding == "delimited"
	}
	version := c.version
	if version == "" {
		switch c.media { // a wildcard has no version of its own
		case "application/openmetrics-text":
			version = "0.0.1"
		case "text/plain":
			version = "0.0.4"
		}
	}
	return version == o.version
}

// parseClause reads a clause such as
//
//	application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5
//
// It reports false for what is not one, and for what is not acceptable (q=0).
// A parameter that is not name=value is skipped.
func parseClause(s string) (clause, bool) {
	media, params, _ := strings.Cut(s, ";")
	typ, sub, hasSub := strings.Cut(media, "/")
	typ, sub = strings.Trim(typ, " "), strings.Trim(sub, " ")
	if !hasSub && typ == "*" {
		sub = "*"
	} else if !hasSub || sub == "" || strings.Contains(sub, "/") {
		return clause{}, false
	}
	c := clause{media: typ + "/" + sub, q: 1}
	for p := range strings.SplitSeq(params, ";") {
		name, value, ok := strings.Cut(p, "=")
		if !ok || strings.Contains(value, "=") {
			continue
		}
		switch strings.Trim(name, " ") {
		case "q":
			q, err := strconv.ParseFloat(strings.Trim(value, " "), 64)
			if err != nil || !(q >= 0 && q <= 1) {
				q = 0
			}
			c.q = q
		case "version":
			c.version = strings.Trim(value, " ")
		case "proto":
			c.proto = strings.Trim(value, " ")
		case "encoding":
			c.encoding = strings.Trim(value, " ")
		case "escaping":
			c.escaping = strings.Trim(value, " ")
		}
	}
	return c, c.q > 0
}
