// Package otlp is an output of package meter that sends to a receiver of the
// OpenTelemetry protocol over HTTP: the OpenTelemetry collector, Prometheus, or a
// vendor's endpoint.
//
//	m := meter.New(meter.Options{CI: "toy", Server: "ci.example.com", Outputs: []meter.Output{
//		otlp.New(otlp.Options{URL: "http://collector:4318"}),
//	}})
//
// Names are those of the semantic conventions for CI/CD where they have one, as
// docs/outputs.md lists them. It is a package of its own so that who does not
// import it takes on nothing but the standard library; it takes
// google.golang.org/protobuf/encoding/protowire. It starts no goroutine; Run of the
// meter does. Start with [New].
package otlp

import (
	"time"

	"github.com/cimeter/cimeter/internal/export"
	"github.com/cimeter/cimeter/internal/output/otlp"
	"github.com/cimeter/cimeter/internal/output/post"
)

// Options of the output. URL must be set.
type Options struct {
	URL      string            // base address, before /v1/metrics: http://HOST:4318
	Interval time.Duration     // between two sends; 0 is 10 s
	Headers  map[string]string // sent with each request
	// User makes Secret the password of basic authentication; without a user it is
	// a bearer token. Secret is asked before each request; nil sends none.
	User   string
	Secret func() (string, error)
	CAFile string // PEM of the authorities that may sign the receiver's certificate; "" is the system's
	// Resource are attributes of the server. What they do not say is service.name
	// (the meter's CI), service.instance.id (its Server or Machine) and host.name (its
	// Machine), where those are known.
	Resource map[string]string
}

// New returns the output, which is a meter.Output. An address that cannot be used
// is an error of the meter's Run.
func New(o Options) export.Opening {
	return export.Later("otlp", o.Interval, func(w export.Whose) (export.Output, func(), error) {
		to, err := post.New(post.Options{URL: o.URL, Headers: o.Headers, User: o.User, Secret: o.Secret, CAFile: o.CAFile})
		if err != nil {
			return nil, nil, err
		}
		service := w.CI
		if service == "" {
			service = "unknown_service" // what the conventions say of one without a name
		}
		return otlp.New(otlp.Options{To: to, Resource: export.Labels(o.Resource, map[string]string{
			"service.name": service, "service.instance.id": w.Instance(), "host.name": w.Machine,
		})}), to.Close, nil
	})
}
