package statsd

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/series"
)

// Options of a StatsD sink. Address must be set.
type Options struct {
	Address         string         // HOST:PORT
	Name            string         // template of a name; "" is ${name}.${labels}
	Labels          []series.Label // of series that do not have them: whose they are, among many senders
	MaxPacket       int            // bytes of a datagram at most; 0 is 1432
	Started         time.Time      // counters that were 0 then, or later, are told from 0; others from their first value on
	CountHistograms bool           // tell all histograms as counters
	WholeNumbers    bool           // tell counters in whole units only
	KeepGauges      bool           // send nothing when a gauge is no more
}

// DogOptions of a DogStatsD sink. Address must be set.
type DogOptions struct {
	Address   string // HOST:PORT, udp://HOST:PORT, unix:///PATH (datagrams) or unixstream:///PATH
	Prefix    string // before each name
	Tags      []string
	Labels    []series.Label // as in Options; a tag of the same name wins
	MaxPacket int            // bytes of a datagram at most; 0 is 1432 over UDP, else 8192
	Started   time.Time      // as in Options
	Origin    Origin
}

// Origin are the fields by which an agent finds whose metrics they are. One that
// is empty is not sent: agents that are older than a field refuse it.
type Origin struct {
	ContainerID  string // an id, ci-ID or in-INODE; agents from 7.35
	ExternalData string // agents from 7.57
	Cardinality  string // none, low, orchestrator or high; agents from 7.64
}

// The reasons of drops.
const (
	tooLong   = "too_long"   // longer than a packet
	noNumber  = "no_number"  // not a number that the format has
	nameTaken = "name_taken" // another gauge has the same name
	noRoom    = "series"     // more series than are remembered
)

const (
	// maxSeries bounds what is remembered: some 400 bytes each, 200 MB.
	maxSeries = 500_000
	// forgetAfter is how long a series that is no more is remembered, in case it
	// comes back: its counter goes on then.
	forgetAfter = time.Hour
)

// Sink sends to one server. Make it with New or NewDog.
type Sink struct {
	link     link
	started  time.Time
	template template
	dog      *dog // nil: plain StatsD
	fixed    []series.Label
	counted  bool // histograms are told as counters
	whole    bool
	keep     bool // ended gauges

	entries map[string]*entry // by key
	gauges  map[string]*entry // by name
	packer  packer
	news    []fresh
	at      time.Time // of the Send that runs
	sent    series.Sent
}

// New returns a sink of plain StatsD. It connects when it sends first. The error
// is [cimeter.ErrInvalid].
func New(o Options) (*Sink, error) {
	if o.Name == "" {
		o.Name = defaultName
	}
	t, err := parseTemplate(o.Name)
	if err != nil {
		return nil, err
	}
	return newSink(Sink{template: t, fixed: o.Labels, counted: o.CountHistograms, whole: o.WholeNumbers, keep: o.KeepGauges}, o.Address, o.MaxPacket, o.Started)
}

// NewDog returns a sink of DogStatsD. It connects when it sends first. The error
// is [cimeter.ErrInvalid].
func NewDog(o DogOptions) (*Sink, error) {
	d, err := newDog(o)
	if err != nil {
		return nil, err
	}
	// An agent shows no gauge that it is not sent.
	fixed := slices.DeleteFunc(slices.Clone(o.Labels), func(l series.Label) bool {
		return slices.ContainsFunc(o.Tags, func(tag string) bool { name, _, _ := strings.Cut(tag, ":"); return name == l.Name })
	})
	return newSink(Sink{dog: d, fixed: fixed, keep: true}, o.Address, o.MaxPacket, o.Started)
}

func newSink(s Sink, address string, packet int, started time.Time) (*Sink, error) {
	var err error
	if s.link, err = parseAddress(address); err != nil {
		return nil, err
	}
	switch {
	case packet < 0 || packet > maxPacket:
		return nil, fmt.Errorf("packet of %d bytes: want at most %d: %w", packet, maxPacket, cimeter.ErrInvalid)
	case packet == 0 && s.link.network == "udp":
		packet = packetUDP
	case packet == 0:
		packet = packetUnix
	}
	s.started, s.entries, s.gauges = started, map[string]*entry{}, map[string]*entry{}
	s.packer.limit = packet
	return &s, nil
}

// Close closes the socket.
func (s *Sink) Close() { s.link.close() }

// Check says whether the server is there, as far as that can be told without
// sending it anything.
func (s *Sink) Check(ctx context.Context) (string, error) { return s.link.answers(ctx) }

// entry is what is remembered of one point.
type entry struct {
	shape shape
	seen  time.Time // the at of the last Send that had it
	cells []cell    // what it is told as
	told  *observed // of a histogram that is told as observations
	gauge bool
	taken bool // its name is another gauge's
	ended bool // 0 was told when it was no more
}

// cell is one name that a server knows.
type cell struct {
	name, kind, tail string // NAME : value |KIND tail
	counter          bool
	quiet            bool // its first 0 need not be told
	known            bool // the server has heard of it
	rise             rise
}

// Send tells what the families say now, each counter by what it rose. When it
// fails, what the counters of the points that were not sent rose by is told by
// the next one.
func (s *Sink) Send(ctx context.Context, at time.Time, families []series.Family) (series.Sent, error) {
	s.sent, s.at = series.Sent{}, at
	if err := s.link.open(ctx, at); err != nil {
		return s.sent, err
	}
	if err := s.link.refused(); err != nil { // it came back since the last Send
		return s.sent, err
	}
	conn := s.link.conn
	deadline, _ := ctx.Deadline()
	conn.SetWriteDeadline(deadline)
	defer context.AfterFunc(ctx, func() { conn.SetWriteDeadline(time.Unix(1, 0)) })()
	s.packer.begin(ctx, &s.link)
	err := s.families(at, families)
	if err == nil {
		err = s.packer.finish()
	}
	s.sent.Points += s.packer.points
	s.packer.end()
	return s.sent, err
}

// End tells that all gauges are no more, where that is told at all: with this
// process they end.
func (s *Sink) End(ctx context.Context, at time.Time) (series.Sent, error) {
	if s.keep {
		return series.Sent{}, nil
	}
	return s.Send(ctx, at, nil)
}

func (s *Sink) families(at time.Time, families []series.Family) error {
	seen := 0
	for i := range families {
		f := &families[i]
		for j := range f.Points {
			p := &f.Points[j]
			if !sound(p) {
				s.drop(noNumber)
				continue
			}
			e := s.entries[p.Key]
			whole := e == nil && s.isWhole(p)
			if e != nil && e.shape != shapeOf(f, p) {
				s.remove(p.Key, e)
				e = nil
			}
			if e == nil {
				if e = s.add(f, p, whole); e == nil {
					s.drop(noRoom)
					continue
				}
			}
			if !e.seen.Equal(at) {
				seen++
			}
			e.seen = at
			if err := s.point(f, p, e); err != nil {
				return err
			}
		}
	}
	if seen == len(s.entries) {
		return nil
	}
	return s.missing(at)
}

// missing looks after the series that are no more.
func (s *Sink) missing(at time.Time) error {
	for key, e := range s.entries {
		if e.seen.Equal(at) {
			continue
		}
		if at.Sub(e.seen) > forgetAfter {
			// Should it come back, its counter is taken from there on: what it was
			// before has been told.
			s.remove(key, e)
			s.started = at
			continue
		}
		if !e.gauge || e.ended || e.taken || s.keep {
			continue
		}
		for i := range e.cells {
			if c := &e.cells[i]; !c.counter && c.known {
				if _, err := s.packer.add(s.packer.gauge(c, 0), done{ended: e}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (s *Sink) remove(key string, e *entry) {
	delete(s.entries, key)
	if e.gauge && !e.taken {
		for i := range e.cells {
			delete(s.gauges, e.cells[i].name+e.cells[i].tail)
		}
	}
}

// drop counts a point that is left out.
func (s *Sink) drop(reason string) {
	for i := range s.sent.Dropped {
		if s.sent.Dropped[i].Reason == reason {
			s.sent.Dropped[i].Points++
			return
		}
	}
	s.sent.Dropped = append(s.sent.Dropped, series.Drop{Reason: reason, Points: 1})
}

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }
