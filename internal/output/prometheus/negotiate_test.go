package prometheus_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"

	"github.com/cimeter/cimeter/internal/output/prometheus"
)

// peer is what prometheus/common chooses among the same formats.
func peer(accept string) string {
	h := http.Header{}
	h.Set("Accept", accept)
	return string(expfmt.NegotiateAccept(h, expfmt.FmtOpenMetrics_1_0_0, expfmt.FmtOpenMetrics_0_0_1, expfmt.FmtText, expfmt.FmtText_1_0_0, expfmt.FmtProtoDelim))
}

func TestNegotiate_asPrometheus(t *testing.T) {
	for _, accept := range []string{
		"",
		"*/*",
		"*",
		"text/*",
		"text/html",
		"text/plain",
		"text/plain;version=0.0.4",
		"text/plain; version = 0.0.4 ; charset=utf-8",
		"text/plain;version=1.0.0;escaping=allow-utf-8",
		"text/plain;version=0.0.3",
		"application/openmetrics-text",
		"application/openmetrics-text;version=1.0.0",
		"application/openmetrics-text; version=1.0.0; charset=utf-8",
		"application/openmetrics-text;version=0.0.1",
		"application/openmetrics-text;version=2.0.0",
		"application/openmetrics-text;version=1.0.0;escaping=dots",
		"application/openmetrics-text;version=1.0.0;escaping=nonsense",
		"application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.6",
		"text/plain;version=0.0.4;q=0.5,application/openmetrics-text;version=1.0.0;q=0.6",
		"text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0",
		"*/*,application/openmetrics-text;version=1.0.0",
		"application/openmetrics-text;version=1.0.0;q=x=y",
		"application/openmetrics-text;;;version=1.0.0;flag",
		"application/openmetrics-text/more;version=1.0.0",
		"application/;version=1.0.0",
		",,,",
		";q=1",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
		// Prometheus 2.42, 2.53 and 3.x, with and without protobuf.
		"application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
		"application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
		"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
		"text/plain;version=1.0.0;escaping=underscores;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.4",
		// curl, a browser, the Go client.
		"text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8",
	} {
		format, got := prometheus.Negotiate(accept)
		if want := peer(accept); got != want {
			t.Errorf("%q: %q: want %q", accept, got, want)
		}
		if (format == prometheus.OpenMetrics) != strings.HasPrefix(got, "application/openmetrics-text;") {
			t.Errorf("%q: format %d is not %q", accept, format, got)
		}
	}
}

// Where we differ: what a client refuses it does not get.
func TestNegotiate_refused(t *testing.T) {
	for _, accept := range []string{
		"application/openmetrics-text;version=1.0.0;q=0,text/plain;version=0.0.4;q=0.1",
		"application/openmetrics-text;version=1.0.0;q=0",
		"application/openmetrics-text;version=1.0.0;q=-1",
		"application/openmetrics-text;version=1.0.0;q=NaN",
	} {
		if _, got := prometheus.Negotiate(accept); got != "text/plain; version=0.0.4; charset=utf-8; escaping=underscores" {
			t.Errorf("%q: %q: want text", accept, got)
		}
	}
}

func FuzzNegotiate(f *testing.F) {
	f.Add("application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2")
	f.Add("*;q=,/;=;;,,a/b/c;version")
	f.Add("text/plain;version=0.0.4;escaping=\r\nx: y")
	f.Fuzz(func(t *testing.T, accept string) {
		format, got := prometheus.Negotiate(accept)
		if strings.ContainsAny(got, "\r\n") {
			t.Errorf("%q: content type %q", accept, got)
		}
		// One clause without weights leaves no doubt about order: there the two agree.
		if !strings.ContainsAny(accept, ",q") && got != peer(accept) {
			t.Errorf("%q: %q: want %q", accept, got, peer(accept))
		}
		if (format == prometheus.OpenMetrics) != strings.HasPrefix(got, "application/openmetrics-text;") {
			t.Errorf("%q: format %d is not %q", accept, format, got)
		}
	})
}
