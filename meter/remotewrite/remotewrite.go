// Package remotewrite is an output of package meter that sends samples to a
// receiver of Prometheus' remote write protocol: Prometheus, VictoriaMetrics,
// Mimir, Thanos and others. What the receiver does not take waits, with its own
// time, within a bound.
//
//	m := meter.New(meter.Options{CI: "toy", Server: "ci.example.com", Outputs: []meter.Output{
//		remotewrite.New(remotewrite.Options{URL: "http://prometheus:9090/api/v1/write"}),
//	}})
//
// It is a package of its own so that who does not import it takes on nothing but
// the standard library; it takes google.golang.org/protobuf/encoding/protowire and
// github.com/klauspost/compress/snappy. It starts no goroutine; Run of the meter
// does. Start with [New].
package remotewrite

import (
	"time"

	"github.com/cimeter/cimeter/internal/export"
	"github.com/cimeter/cimeter/internal/output/post"
	"github.com/cimeter/cimeter/internal/output/remotewrite"
)

// Options of the output. URL must be set.
type Options struct {
	URL      string            // whole address: http://HOST:9090/api/v1/write
	Interval time.Duration     // between two samples of a series; 0 is 10 s
	Headers  map[string]string // sent with each request: X-Scope-OrgID
	// User makes Secret the password of basic authentication; without a user it is
	// a bearer token. Secret is asked before each request; nil sends none.
	User   string
	Secret func() (string, error)
	CAFile string // PEM of the authorities that may sign the receiver's certificate; "" is the system's
	// Labels are added to each series. What they do not say is job (the meter's CI)
	// and instance (its Server or Machine), where those are known. No two senders
	// may have the same.
	Labels   map[string]string
	MaxBytes int64         // of the samples that wait, 16 each; 0 is 16 MiB
	MaxAge   time.Duration // of the samples that wait; 0 is an hour
}

// New returns the output, which is a meter.Output. An address that cannot be used
// is an error of the meter's Run.
func New(o Options) export.Opening {
	return export.Later("remote_write", o.Interval, func(w export.Whose) (export.Output, func(), error) {
		to, err := post.New(post.Options{URL: o.URL, Headers: o.Headers, User: o.User, Secret: o.Secret, CAFile: o.CAFile})
		if err != nil {
			return nil, nil, err
		}
		return remotewrite.New(remotewrite.Options{
			To: to, MaxBytes: o.MaxBytes, MaxAge: o.MaxAge,
			Labels: export.Labels(o.Labels, map[string]string{"job": w.CI, "instance": w.Instance()}),
		}), to.Close, nil
	})
}
