package remotewrite

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/series"
)

const (
	// maxSamples is how many a request has: what Prometheus itself sends.
	maxSamples = 2000

	// maxFamilies bounds the families that are remembered: programs that are
	// scraped may have any.
	maxFamilies = 10000

	// maxGone bounds the ended series that are remembered.
	maxGone = 10000

	// maxZeroAge is how far back the sample of 0 of a new counter may lie: a
	// receiver that holds newer ones of other series takes about an hour.
	maxZeroAge = 30 * time.Minute

	// DefaultMaxBytes and DefaultMaxAge bound what waits: for an hour of 4,000
	// series every 15 s.
	DefaultMaxBytes = 16 << 20
	DefaultMaxAge   = time.Hour
)

// Poster sends one body to the receiver; see post.Target.
type Poster interface {
	Post(ctx context.Context, path string, header http.Header, body []byte) (http.Header, []byte, error)
}

// Protocol is a version of the protocol.
type Protocol string

// The protocols.
const (
	Auto Protocol = "auto" // 2.0 until the receiver shows that it does not take it
	V1   Protocol = "1.0"
	V2   Protocol = "2.0"
)

// Options are what New needs. To must be set.
type Options struct {
	To       Poster
	Protocol Protocol       // "" is Auto
	Labels   []series.Label // of every series that has none of that name: job, instance
	MaxBytes int64          // of the samples that wait, 16 each; 0 is DefaultMaxBytes
	MaxAge   time.Duration  // of the samples that wait; 0 is DefaultMaxAge
}

// Output keeps and sends. Make it with New.
type Output struct {
	o Options

	mu       sync.Mutex // for what Keep shares with Send
	queue    queue
	clock    clock
	prev     int64 // time of the last round, ms
	round    uint64
	families map[string]*family
	points   map[string]*point
	gone     int
	scratch  []float64

	flight []batch // the request that the receiver has not taken; for Send alone
	sender sender
}

// New returns an output that keeps nothing yet.
func New(o Options) *Output {
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MaxAge == 0 {
		o.MaxAge = DefaultMaxAge
	}
	return &Output{
		o: o, families: map[string]*family{}, points: map[string]*point{},
		sender: sender{to: o.To, two: o.Protocol != V1, fixed: o.Protocol == V2},
	}
}

// Check says which version of the protocol the receiver takes, by requests that
// have no samples. It changes nothing of what waits or was learnt.
func (o *Output) Check(ctx context.Context) (string, error) {
	probe := sender{to: o.o.To, two: o.o.Protocol != V1, fixed: o.o.Protocol == V2}
	if _, err := probe.send(ctx, nil); err != nil {
		return "", fmt.Errorf("send no samples: %w", err)
	}
	if probe.two {
		return "takes remote write 2.0", nil
	}
	return "takes remote write 1.0", nil
}

// Keep takes the values of all series at one instant. Series that were there
// before and are not now have ended. It returns what had to go: "queue" where
// there was no room, "age" where it waited for too long. A histogram is as many
// samples as it has series.
func (o *Output) Keep(at time.Time, families []series.Family) series.Sent {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.round++
	zero := o.prev
	now := batch{at: o.clock.next(at)}
	o.prev = now.at
	total := 0
	for i := range families {
		for j := range families[i].Points {
			total += samples(&families[i], &families[i].Points[j])
		}
	}
	now.samples = make([]sample, 0, total)
	begin := map[int64][]sample{}
	seen := 0
	for i := range families {
		f := &families[i]
		shared := o.family(f)
		for j := range f.Points {
			p := &f.Points[j]
			n := samples(f, p)
			known := o.points[p.Key]
			if known != nil && known.seen == o.round {
				continue // there twice: a series has one value at a time
			}
			if known == nil || !known.is(f.Kind, p, n) {
				o.replaced(&now, known, n)
				known = o.newPoint(shared, p, n)
				o.points[p.Key] = known
				if t := o.zeroTime(known.all[0].start, zero, now.at); t != 0 {
					begin[t] = zeros(begin[t], known, f.Kind)
				}
			}
			if known.gone {
				known.gone = false
				o.gone--
			}
			known.seen = o.round
			seen++
			o.scratch = values(o.scratch[:0], f, p)
			for k, v := range o.scratch {
				now.samples = append(now.samples, sample{&known.all[k], v})
			}
		}
	}
	if seen < len(o.points)-o.gone {
		o.endAbsent(&now)
	}
	for t, s := range begin { // of series that have no other sample yet: any order among them
		o.queue.push(batch{t, s})
	}
	o.queue.push(now)
	return o.trim(now.at)
}

func (o *Output) trim(now int64) series.Sent {
	over, old := o.queue.trim(o.o.MaxBytes, now-o.o.MaxAge.Milliseconds())
	return sentOf(0, series.Drop{Reason: "queue", Points: over}, series.Drop{Reason: "age", Points: old})
}

func sentOf(points int, drops ...series.Drop) series.Sent {
	s := series.Sent{Points: points}
	for _, d := range drops {
		if d.Points > 0 {
			s.Dropped = append(s.Dropped, d)
		}
	}
	return s
}

// is reports whether p is still the same n series, counting from the same start.
func (known *point) is(kind series.Kind, p *series.Point, n int) bool {
	return len(known.all) == n && (!counts(kind) || known.all[0].start == startOf(p))
}

// replaced ends those series of a point that it has no more: its buckets are others.
func (o *Output) replaced(b *batch, known *point, n int) {
	if known == nil {
		return
	}
	if known.gone {
		o.gone--
	} else if len(known.all) != n {
		o.end(b, known)
	}
}

// zeroTime says at what time a counter that is new was 0: when it started, or
// else when the values were read last and it was not there. 0 is that nobody
// knows, or that it is too long ago for a receiver to take.
func (o *Output) zeroTime(start, prev, now int64) int64 {
	t := max(start, prev)
	if start == 0 || t >= now || now-t > min(maxZeroAge, o.o.MaxAge).Milliseconds() {
		return 0
	}
	return t
}

func zeros(to []sample, p *point, kind series.Kind) []sample {
	for i := range p.all {
		if kind == series.Summary && p.all[i].extra.Name != "" {
			continue // a quantile counts nothing
		}
		to = append(to, sample{&p.all[i], 0})
	}
	return to
}

func (o *Output) family(f *series.Family) *family {
	known := o.families[f.Name]
	if known == nil || known.kind != f.Kind {
		if len(o.families) >= maxFamilies {
			clear(o.families) // their series keep those that they have
		}
		known = &family{name: series.MetricName(f.Name), help: f.Help, unit: f.Unit, kind: f.Kind}
		o.families[f.Name] = known
	}
	return known
}

func (o *Output) end(b *batch, p *point) {
	for i := range p.all {
		b.samples = append(b.samples, sample{&p.all[i], math.Float64frombits(staleNaN)})
	}
}

// endAbsent ends the series that this round did not have. Counters among them
// are remembered: one that comes back goes on, it does not begin at 0.
func (o *Output) endAbsent(b *batch) {
	for key, p := range o.points {
		if p.gone || p.seen == o.round {
			continue
		}
		o.end(b, p)
		if p.all[0].start == 0 || o.gone >= maxGone {
			delete(o.points, key)
			continue
		}
		p.gone = true
		o.gone++
	}
}

// Send sends what is kept, oldest first, until nothing is left or the receiver
// does not take it; families are given to Keep first, unless they are nil. What
// a receiver refuses for good (a 4xx but 429) is dropped as "refused"; what it
// takes a request without, as "rejected". An error wraps what package refusal
// says, or [cimeter.ErrUnavailable] where nobody answered.
func (o *Output) Send(ctx context.Context, at time.Time, families []series.Family) (series.Sent, error) {
	var sum series.Sent
	if families != nil {
		sum = o.Keep(at, families)
	}
	var (
		refused, rejected int
		first             error
	)
	for ctx.Err() == nil && o.next() {
		a, err := o.sender.send(ctx, o.flight)
		sum.Points += a.written
		refused += a.refused
		rejected += a.rejected
		if err != nil && first == nil {
			first = err
		}
		if !a.done {
			break
		}
		o.flight = nil
		if a.stop {
			break
		}
	}
	drops := sentOf(0, series.Drop{Reason: "refused", Points: refused}, series.Drop{Reason: "rejected", Points: rejected})
	sum.Dropped = append(sum.Dropped, drops.Dropped...)
	if first == nil && ctx.Err() != nil {
		first = ctx.Err()
	}
	return sum, first
}

// next makes sure that there is a request to send, if there is anything.
func (o *Output) next() bool {
	if len(o.flight) > 0 {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flight = o.queue.take(maxSamples)
	return len(o.flight) > 0
}

// Waiting returns how many samples the receiver has not taken yet.
func (o *Output) Waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return size(o.queue.batches)
}

// End ends all series with a stale marker, so that a machine that is gone does
// not look alive for five minutes, and makes one last try to send. Where older
// samples wait, the receiver is away: nothing is tried, and the error says so.
func (o *Output) End(ctx context.Context, at time.Time) (series.Sent, error) {
	if n := size(o.flight) + o.Waiting(); n > 0 {
		return series.Sent{Dropped: []series.Drop{{Reason: "shutdown", Points: n}}}, errWaiting
	}
	return o.Send(ctx, at, []series.Family{})
}

var errWaiting = fmt.Errorf("samples still wait for the receiver: its series are not ended: %w", cimeter.ErrUnavailable)
