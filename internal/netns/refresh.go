package netns

import (
	"errors"
	"fmt"
	"maps"

	"golang.org/x/sys/unix"
)

// Refresh finds out where new handles' uplinks are counted on our side and then
// reads the counters of all that are by one dump of RTM_GETSTATS
// (IFLA_STATS_LINK_64; uapi linux/if_link.h). It may wait for the kernel's rtnl
// lock as long as others hold it. A handle that it has no news of is read from
// proc by the next Read: after an error nothing is lost.
func (r *Reader) Refresh() error {
	r.socket.Lock()
	defer r.socket.Unlock()
	if r.nl == nil {
		return nil
	}
	if err := r.locateAll(); err != nil {
		r.nl.reset()
		return fmt.Errorf("find ends of uplinks: %w", err)
	}
	if len(r.byIndex) == 0 {
		return nil
	}
	if err := r.dump(); err != nil {
		r.nl.reset()
		return fmt.Errorf("dump link statistics: %w", err)
	}
	return nil
}

// locateAll tries to find our ends of the uplinks of handles that are new, once
// each, and forgets handles that were closed.
func (r *Reader) locateAll() error {
	r.mu.Lock()
	r.waiting = r.waiting[:0]
	for _, h := range r.fresh {
		if !h.closed {
			r.waiting = append(r.waiting, h)
		}
	}
	clear(r.fresh)
	r.fresh = r.fresh[:0]
	if r.left {
		r.left = false
		maps.DeleteFunc(r.byIndex, func(_ int32, h *Handle) bool { return h.closed || h.gone })
	}
	r.mu.Unlock()

	listed := false
	for i, h := range r.waiting {
		r.waiting[i] = nil
		if h.several && h.peer == 0 {
			continue
		}
		l, found, err := r.hostEnd(h, &listed)
		if err == nil && found {
			err = r.adopt(h, l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// adopt has h counted by l, if l counts what h's uplink counts: a reading of
// the uplink lies between two of l. Both ends of a veth show the same counters.
func (r *Reader) adopt(h *Handle, l link) error {
	before, err := r.nl.stats(l.index)
	if err != nil {
		return ignoreNoDevice(err)
	}
	r.mu.Lock()
	err = h.fetch()
	receive, transmit := h.receive, h.transmit
	r.mu.Unlock()
	if err != nil {
		return nil // it is gone
	}
	after, err := r.nl.stats(l.index)
	if err != nil {
		return ignoreNoDevice(err)
	}
	same := before.transmit <= receive && receive <= after.transmit &&
		before.receive <= transmit && transmit <= after.receive
	if same && r.byIndex[l.index] == nil {
		h.index.Store(l.index)
		r.byIndex[l.index] = h
	}
	return nil
}

// hostEnd finds the interface of our namespace whose other end is h's uplink.
// The list of links is asked for only when the last one does not know the
// namespace, and once for all handles of a refresh: with hundreds of containers
// it is the dearest part.
func (r *Reader) hostEnd(h *Handle, listed *bool) (l link, found bool, err error) {
	for {
		nsid, err := r.nsid(h.pid, h.dir)
		if err != nil {
			return link{}, false, ignoreNoProcess(err)
		}
		if nsid != noNSID {
			if l, ok := pick(r.links, nsid, h.peer); ok {
				now, err := r.nl.link(l.index)
				if err == nil && now == l {
					return l, true, nil
				}
				if err != nil && !errors.Is(err, unix.ENODEV) {
					return link{}, false, err
				}
			}
		}
		if *listed {
			return link{}, false, nil
		}
		// The dump gives every namespace at the other end of a veth an id, so
		// the id is asked for again after it.
		*listed = true
		if r.links, err = r.nl.links(r.links[:0]); err != nil {
			return link{}, false, err
		}
	}
}

// pick returns the link to interface peer of namespace nsid; peer 0 is any, if
// there is one only.
func pick(links []link, nsid, peer int32) (l link, ok bool) {
	for _, c := range links {
		if c.nsid != nsid || peer != 0 && c.peer != peer {
			continue
		}
		if ok {
			return link{}, false
		}
		l, ok = c, true
	}
	return l, ok
}

// dump takes the counters of every interface on our side.
func (r *Reader) dump() error {
	if err := r.nl.dumpStats(); err != nil {
		return err
	}
	for {
		m, more, err := r.nl.next()
		if err != nil || !more {
			return err
		}
		if m.kind != unix.RTM_NEWSTATS {
			continue
		}
		s, err := parseStats(m.body)
		if err != nil {
			return err
		}
		if h := r.byIndex[s.index]; h != nil && s.known {
			r.mu.Lock()
			h.news = true
			h.set(s.transmit, s.receive)
			r.mu.Unlock()
		}
	}
}

func ignoreNoDevice(err error) error {
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

func ignoreNoProcess(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return err
}
