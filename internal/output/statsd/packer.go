package statsd

import (
	"context"
	"strconv"
)

// packer fills packets with lines and sends each when the next line finds no
// room in it. What a line tells is remembered as told when its packet was sent,
// over UDP when the next one was too: a machine without a socket at that port
// says so by then.
type packer struct {
	limit int // bytes of a packet

	ctx    context.Context // of the Send that runs
	link   *link
	packet []byte
	line   []byte
	now    []done // in packet
	before []done // in the packet before it
	points int    // that were sent
}

// done is what a line has told once it is sent.
type done struct {
	cell     *cell   // known from then on
	told     float64 // of its counter
	observed *observed
	bucket   int
	n        uint64
	sum      float64
	exact    bool // sum is that of all observations
	ended    *entry
	point    bool // the point is sent with this line
}

func (p *packer) begin(ctx context.Context, l *link) { p.ctx, p.link, p.points = ctx, l, 0 }

// end forgets what was not sent.
func (p *packer) end() {
	p.ctx = nil
	clear(p.now)
	clear(p.before)
	p.packet, p.now, p.before = p.packet[:0], p.now[:0], p.before[:0]
}

// add puts a line, or lines that must stay together, into the packet, and
// reports whether they fit into one at all.
func (p *packer) add(line []byte, d done) (fits bool, err error) {
	if len(line) > p.limit {
		return false, nil
	}
	if len(p.packet) > 0 && len(p.packet)+1+len(line) > p.limit {
		if err := p.flush(); err != nil {
			return true, err
		}
	}
	if len(p.packet) > 0 {
		p.packet = append(p.packet, '\n')
	}
	p.packet = append(p.packet, line...)
	p.now = append(p.now, d)
	return true, nil
}

// last is what the line tells that was added last.
func (p *packer) last() *done { return &p.now[len(p.now)-1] }

func (p *packer) flush() error {
	if err := p.link.send(p.ctx, p.packet); err != nil {
		if !p.link.behind(err) {
			p.apply()
		}
		return err
	}
	p.apply()
	p.before, p.now = p.now, p.before[:0]
	p.packet = p.packet[:0]
	return nil
}

// finish sends what is left.
func (p *packer) finish() error {
	if len(p.packet) > 0 {
		if err := p.flush(); err != nil {
			return err
		}
	}
	if err := p.link.refused(); err != nil {
		return err
	}
	p.apply()
	p.before = p.before[:0]
	return nil
}

// apply remembers what the packet before has told.
func (p *packer) apply() {
	for i := range p.before {
		d := &p.before[i]
		if c := d.cell; c != nil {
			c.known = true
			c.rise.told = d.told
		}
		if o := d.observed; o != nil {
			o.counts[d.bucket] += d.n
			if o.sum += d.sum; d.exact {
				o.sum = d.sum
			}
		}
		if d.ended != nil {
			d.ended.ended = true
		}
		if d.point {
			p.points++
		}
	}
}

// counter returns the line of a counter's delta, and of a second one that is
// not 0.
func (p *packer) counter(c *cell, delta, second float64) []byte {
	p.line = appendNumber(p.start(c), delta)
	if second > 0 {
		p.line = append(append(p.close(c), '\n'), c.name...)
		p.line = appendNumber(append(p.line, ':'), second)
	}
	return p.close(c)
}

// gauge returns the line of a gauge. A sign would make it a change of what the
// server has, so 0 comes before a negative one.
func (p *packer) gauge(c *cell, v float64) []byte {
	p.line = p.start(c)
	if v < 0 {
		p.line = append(p.line, '0')
		p.line = append(append(p.close(c), '\n'), c.name...)
		p.line = append(p.line, ':')
	}
	p.line = appendNumber(p.line, v)
	return p.close(c)
}

// observations returns the line of n observations of v, which is no more exact
// than a difference of numbers as large as of.
func (p *packer) observations(c *cell, v, of float64, n uint64) []byte {
	p.line = append(appendRounded(p.start(c), v, of), '|')
	p.line = append(p.line, c.kind...)
	if n > 1 {
		p.line = appendRate(p.line, n)
	}
	p.line = append(p.line, c.tail...)
	return p.line
}

func (p *packer) start(c *cell) []byte { return append(append(p.line[:0], c.name...), ':') }

func (p *packer) close(c *cell) []byte {
	p.line = append(append(p.line, '|'), c.kind...)
	p.line = append(p.line, c.tail...)
	return p.line
}

// text is a bound or rank as a label's value.
func text(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
