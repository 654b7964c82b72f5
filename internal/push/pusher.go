package push

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/spool"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/wire"
)

// Server takes what is pushed, one try a call: see [Sender].
type Server interface {
	Records(ctx context.Context, lines [][]byte) ([]wire.Result, error)
	Heartbeat(ctx context.Context, h wire.Heartbeat) error
	Address() string
}

// Options are what New needs. Server, Spool and Tally must be set.
type Options struct {
	Server    Server
	Spool     *spool.Spool
	Tally     *tally.Table
	Machine   string
	Version   string
	Heartbeat time.Duration         // between two; 0 is 5 s
	Running   func() []wire.Running // the builds that run now; nil: not told
	Pulling   func() []wire.Pulling // the jobs that wait for an image; nil: not told
	Host      func() *wire.Host     // what the machine shows now, called once a heartbeat; nil: not told
	Scrape    func() *wire.Scrape   // where the machine is scraped; nil: not told
}

// Pusher sends. Make it with New, run it once.
type Pusher struct {
	o    Options
	log  *slog.Logger
	wake chan struct{}

	records, bytes, over, corrupt, invalid  *tally.Value
	stored, duplicate, refused              *tally.Value
	retries, unauthorized, heartbeatsFailed *tally.Value

	mu      sync.Mutex
	failing error // why the server takes nothing though it answers; nil when it does, or does not answer
	told    bool  // that the spool is over its bound
}

// DefaultHeartbeat is the time between two heartbeats.
const DefaultHeartbeat = 5 * time.Second

// New returns a pusher that does nothing yet.
func New(o Options, log *slog.Logger) *Pusher {
	if o.Heartbeat == 0 {
		o.Heartbeat = DefaultHeartbeat
	}
	t := o.Tally
	p := &Pusher{
		o: o, log: log, wake: make(chan struct{}, 1),
		records: t.Value(catalog.AgentSpoolRecords), bytes: t.Value(catalog.AgentSpoolBytes),
		over: t.Value(catalog.AgentDropped, "spool"), corrupt: t.Value(catalog.AgentDropped, "corrupt"), invalid: t.Value(catalog.AgentDropped, "invalid"),
		stored: t.Value(catalog.AgentPushed, "stored"), duplicate: t.Value(catalog.AgentPushed, "duplicate"), refused: t.Value(catalog.AgentPushed, "refused"),
		retries: t.Value(catalog.AgentPushFailures, "unavailable"), unauthorized: t.Value(catalog.AgentPushFailures, "refused"),
		heartbeatsFailed: t.Value(catalog.AgentPushFailures, "heartbeat"),
	}
	p.account()
	return p
}

// Ready returns nil unless the server answers and takes nothing: a token that
// it does not know, an address that is no server of ours. A server that is away
// is not the agent's fault: the spool keeps what it would take.
func (p *Pusher) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failing
}

// Records is what an agent keeps its records in; see agent.Records.
type Records interface {
	Put(r *cimeter.Record) error
	Checkpoint(key string, state []byte) error
	DropCheckpoint(key string) error
	Checkpoints(fn func(key string, state []byte) error) error
}

// Before returns records that put each record into the spool and then into next.
// A process that dies between the two still has the build's checkpoint and puts
// it once more: nothing is lost, and the server takes a key once.
func (p *Pusher) Before(next Records) Records { return &tee{Records: next, p: p} }

type tee struct {
	Records
	p    *Pusher
	last string // key that is in the spool and not yet in Records; Put has one caller at a time
}

// Put is durable in both when it returns nil.
func (t *tee) Put(r *cimeter.Record) error {
	if t.last != r.Key {
		if err := t.p.add(r); err != nil {
			return err
		}
		t.last = r.Key
	}
	return t.Records.Put(r)
}

// add puts a record into the spool. What can never be sent is counted and is no
// error: it must not keep the next ones.
func (p *Pusher) add(r *cimeter.Record) error {
	line, err := json.Marshal(r)
	if err == nil {
		err = p.o.Spool.Add(r.Key, line)
	}
	p.account()
	switch {
	case errors.Is(err, cimeter.ErrInvalid):
		p.invalid.Add(1)
		p.log.Error("record cannot be sent", "build", r.Key, "err", err)
	case err != nil:
		return err
	}
	select {
	case p.wake <- struct{}{}:
	default:
	}
	return nil
}

// account shows what is in the spool, and tells once that its bound is reached,
// until it has been empty again.
func (p *Pusher) account() {
	s := p.o.Spool.Stats()
	p.records.Set(float64(s.Records))
	p.bytes.Set(float64(s.Bytes))
	p.over.Set(float64(s.Over))
	p.corrupt.Set(float64(s.Corrupt))
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case s.Records == 0:
		p.told = false
	case s.Over > 0 && !p.told:
		p.told = true
		p.log.Error("spool is full, the oldest records are dropped", "server", p.o.Server.Address(), "records", s.Records, "bytes", s.Bytes)
	}
}

// Run sends until ctx ends. What is not sent stays in the spool.
func (p *Pusher) Run(ctx context.Context) error {
	var beats sync.WaitGroup
	beats.Go(func() { p.beat(ctx) })
	defer beats.Wait()
	p.send(ctx)
	return nil
}

func (p *Pusher) beat(ctx context.Context) {
	for {
		err := p.o.Server.Heartbeat(ctx, p.heartbeat())
		if err != nil && ctx.Err() == nil {
			p.heartbeatsFailed.Add(1)
			p.log.Debug("heartbeat not sent", "err", err)
		}
		if !sleep(ctx, spread(p.o.Heartbeat)) {
			return
		}
	}
}

func (p *Pusher) heartbeat() wire.Heartbeat {
	s := p.o.Spool.Stats()
	h := wire.Heartbeat{
		Agent: p.o.Spool.ID(), Machine: p.o.Machine, Version: p.o.Version, IntervalSeconds: max(1, p.o.Heartbeat.Seconds()),
		Spool:   &wire.Spool{Records: s.Records, Bytes: s.Bytes, Dropped: s.Over + s.Corrupt, Refused: s.Refused},
		Running: []wire.Running{},
	}
	if p.o.Running != nil {
		all := p.o.Running()
		h.Running = append(h.Running, all[:min(len(all), wire.MaxRunning)]...)
	}
	if p.o.Pulling != nil {
		all := p.o.Pulling()
		h.Pulling = all[:min(len(all), wire.MaxRunning)]
	}
	if p.o.Host != nil {
		h.Host = p.o.Host()
	}
	if p.o.Scrape != nil {
		h.Scrape = p.o.Scrape()
	}
	return h
}

// send empties the spool, oldest first, whenever there is something in it.
func (p *Pusher) send(ctx context.Context) {
	var (
		retry backoff
		after uint64 // entries up to this one failed on their own and wait for the next pass
		most  = wire.MaxBatchRecords
	)
	for ctx.Err() == nil {
		entries, err := p.o.Spool.Next(after, most, wire.MaxSendBytes)
		p.account()
		if err != nil {
			p.log.Error("spool cannot be read", "err", err)
			retry.sleep(ctx)
			continue
		}
		if len(entries) == 0 {
			if after > 0 { // a new pass over what failed
				after = 0
				retry.sleep(ctx)
				continue
			}
			select {
			case <-ctx.Done():
			case <-p.wake:
			}
			continue
		}
		lines := make([][]byte, len(entries))
		for i, e := range entries {
			lines[i] = e.Line
		}
		results, err := p.o.Server.Records(ctx, lines)
		if err == nil {
			p.state(nil)
			if err := p.settle(entries, results); err != nil {
				p.log.Error("spool cannot be written", "err", err)
				retry.sleep(ctx)
				continue
			}
			retry, most = backoff{}, min(2*most, wire.MaxBatchRecords)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		switch d := p.judge(err); {
		case d.fault && len(entries) > 1:
			most = len(entries) / 2 // find the one
		case d.fault && d.aside:
			if err := p.o.Spool.Refuse(entries[0].Seq, d.why); !p.aside(keyOf(entries[0].Line), err, d.why) {
				retry.sleep(ctx)
			}
		case d.fault:
			after = entries[0].Seq // the others first
			retry.sleep(ctx)
		case d.wait > 0:
			sleep(ctx, spread(d.wait))
		default:
			retry.sleep(ctx)
		}
	}
}

// settle acts on the results of a batch.
func (p *Pusher) settle(entries []spool.Entry, results []wire.Result) error {
	for i, e := range entries {
		var err error
		switch r := results[i]; r.Status {
		case wire.Stored:
			p.stored.Add(1)
			err = p.o.Spool.Ack(e.Seq)
		case wire.Duplicate:
			p.duplicate.Add(1)
			err = p.o.Spool.Ack(e.Seq)
		case wire.Refused:
			err = p.o.Spool.Refuse(e.Seq, r.Reason)
			p.aside(keyOf(e.Line), err, r.Reason)
		default:
			err = fmt.Errorf("answer for %s: status %.32q: want stored, duplicate or refused", keyOf(e.Line), r.Status)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Pusher) aside(key string, err error, reason string) bool {
	if err != nil {
		p.log.Error("refused record cannot be set aside", "build", key, "err", err)
		return false
	}
	p.refused.Add(1)
	p.log.Error("server refuses a record, it is set aside", "build", key, "reason", reason)
	return true
}

func keyOf(line []byte) string {
	var r struct {
		Key string `json:"key"`
	}
	json.Unmarshal(line, &r) // "" says it is not known
	return r.Key
}

// decision is what to do about a failed try.
type decision struct {
	fault bool          // something in the batch is at fault
	aside bool          // the record at fault is never to be sent again
	wait  time.Duration // 0: as long as it takes by now
	why   string
}

// refusedWait is how long a server that refuses everything is left alone: an
// operator must act, and each try may be held against this address.
const refusedWait = time.Minute

func (p *Pusher) judge(err error) decision {
	var r *Refusal
	if !errors.As(err, &r) && !errors.Is(err, cimeter.ErrUnavailable) { // a token or CA file that cannot be read
		p.unauthorized.Add(1)
		p.state(err)
		p.log.Error("records cannot be sent and are kept", "err", err)
		return decision{wait: refusedWait}
	}
	if r == nil {
		p.retries.Add(1)
		if c := (*tls.CertificateVerificationError)(nil); errors.As(err, &c) {
			p.state(err)
		}
		p.log.Warn("server does not answer, records are kept", "err", err)
		return decision{}
	}
	switch r.Status {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return decision{fault: true, aside: true, why: r.Error()}
	case http.StatusInternalServerError:
		p.retries.Add(1)
		return decision{fault: true, why: r.Error()}
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		p.retries.Add(1)
		p.state(nil)
		return decision{wait: r.After}
	}
	p.unauthorized.Add(1)
	p.state(err)
	p.log.Error("server refuses everything, records are kept", "err", err)
	return decision{wait: max(r.After, refusedWait)}
}

func (p *Pusher) state(err error) {
	p.mu.Lock()
	was := p.failing
	p.failing = err
	p.mu.Unlock()
	if was != nil && err == nil {
		p.log.Info("server takes records again", "server", p.o.Server.Address())
	}
}
