package statsd

import (
	"context"
	"time"

	"github.com/cimeter/cimeter/internal/series"
)

// Options of a StatsD sink. Address must be set.
type Options struct {
	Address         string    // HOST:PORT
	Name            string    // template of a name; "" is ${name}.${labels}
	MaxPacket       int       // bytes of a datagram at most; 0 is 1432
	Started         time.Time // counters that were 0 then, or later, are told from 0; others from their first value on
	CountHistograms bool      // tell all histograms as counters
	WholeNumbers    bool      // tell counters in whole units only
	KeepGauges      bool      // send nothing when a gauge is no more
}

// DogOptions of a DogStatsD sink. Address must be set.
type DogOptions struct {
	Address   string // HOST:PORT, udp://HOST:PORT, unix:///PATH or unixstream:///PATH
	Prefix    string // before each name
	Tags      []string
	MaxPacket int       // bytes of a datagram at most; 0 is 1432 over UDP, else 8192
	Started   time.Time // as in Options
	Origin    Origin
}

// Origin are the fields by which an agent finds whose metrics they are. One that
// is empty is not sent: agents that are older than a field refuse it.
type Origin struct {
	ContainerID  string // an id, ci-ID or in-INODE; agents from 7.35
	ExternalData string // agents from 7.57
	Cardinality  string // none, low, orchestrator or high; agents from 7.64
}

// Sink sends to one server.
type Sink struct{}

// New returns a sink of plain StatsD.
func New(o Options) (*Sink, error) { return &Sink{}, nil }

// NewDog returns a sink of DogStatsD.
func NewDog(o DogOptions) (*Sink, error) { return &Sink{}, nil }

// Send tells what the families say now.
func (s *Sink) Send(ctx context.Context, at time.Time, families []series.Family) (series.Sent, error) {
	return series.Sent{}, nil
}

// Close closes the socket.
func (s *Sink) Close() {}
