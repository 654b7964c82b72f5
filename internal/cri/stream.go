package cri

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cimeter/cimeter"
)

// containerd 2 starts no container while one that follows its events does not take
// them: what it sends fills the socket's buffer, which is its own to size, a quota of
// 64 KiB and a queue of a hundred, and then every start waits (containerd 2.4.2,
// internal/eventq; a larger window of HTTP/2 changes nothing of that). A process that was stopped can do
// nothing about it. So each stream has a deadline, which the runtime's own gRPC server
// holds, and a new one is opened before it: what is left of a stopped agent is gone
// when the deadline has passed.
//
// containerd finds only at its next event that a stream has ended. So none is opened
// after one that told nothing until something has happened, or an idle runtime would
// collect them: then the runtime is asked, as one that has no stream.
//
// CRI-O drops events for which it has no room, so that nothing waits; and versions of it
// panic when two events meet a stream that has just ended. Its stream has no deadline.

// streamed is one event of the stream, or why it ended, or one of these.
type streamed struct {
	message []byte
	err     error
	idle    bool // there is no stream until something happens
	missed  bool // one stream ended before the next was there: this process was stopped
}

// stream sends the events of the runtime's streams until one breaks. A runtime that
// has none is asked again now and then: a newer one may have taken its place.
func (c *Client) stream(ctx context.Context, events chan<- streamed, stirred <-chan struct{}) {
	send := func(e streamed) {
		select {
		case events <- e:
		case <-ctx.Done():
		}
	}
	runtime, err := c.Version(ctx)
	if err != nil {
		send(streamed{err: err})
		return
	}
	life := c.every
	if strings.HasPrefix(runtime, "cri-o") {
		life = 0
	}
	var before *stream // that the next one relieves
	for {
		select {
		case <-stirred:
		default:
		}
		s := c.begin(ctx, life, send)
		if before != nil && s.began.Sub(before.began) > life {
			send(streamed{missed: true})
		}
		var renew <-chan time.Time
		if life > 0 {
			renew = time.After(life * 4 / 5)
		}
		var ended bool
		select {
		case <-s.ended:
			ended = life == 0 || time.Since(s.began) < life*4/5
		case <-renew:
		}
		if before != nil {
			<-before.ended // its deadline has long passed
		}
		before = s
		wait := stirred
		var again <-chan time.Time
		switch {
		case ctx.Err() != nil:
			<-s.ended
			return
		case ended && !errors.Is(s.err, cimeter.ErrUnsupported):
			send(streamed{err: s.err})
			return
		case ended:
			wait, again = nil, time.After(6*c.every)
		case s.heard.Load():
			continue
		default:
			<-s.ended
			before = nil
			send(streamed{idle: true})
		}
		select {
		case <-wait:
		case <-again:
		case <-ctx.Done():
			return
		}
	}
}

// stream is one stream of events.
type stream struct {
	began time.Time
	heard atomic.Bool   // it has told something
	ended chan struct{} // closed when it has ended
	err   error         // why; read it then
}

// begin opens a stream that ends after life; 0: it does not.
func (c *Client) begin(ctx context.Context, life time.Duration, send func(streamed)) *stream {
	s := &stream{began: time.Now(), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.err = c.streamOnce(ctx, life, func(m []byte) {
			s.heard.Store(true)
			send(streamed{message: m})
		})
	}()
	return s
}

// streamOnce sends the events of one stream, and returns why it ended: never nil.
// cimeter.ErrUnsupported: the runtime streams none. containerd does not know the call
// before 1.7; CRI-O ends it at once, and well, where enable_pod_events is off.
func (c *Client) streamOnce(ctx context.Context, life time.Duration, send func([]byte)) error {
	if life > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, life)
		defer cancel()
	}
	r, err := c.open(ctx, "GetContainerEvents", nil)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	for ends := cimeter.ErrUnsupported; ; ends = cimeter.ErrUnavailable {
		m, err := message(r.Body, nil)
		if errors.Is(err, io.EOF) {
			if err = status(r); err == nil {
				err = ends
			}
		}
		if err != nil {
			return err
		}
		send(m)
	}
}
