package gitlab

import "github.com/cimeter/cimeter"

// settle accounts for the job anew and makes final what can be.
func (s *Stages) settle() {
	if len(s.segs) == 0 {
		return
	}
	// Of two accounts that cost the same, the one with a cache is taken.
	last, cost := s.account(true)
	lastNone, costNone := s.account(false)
	if costNone+costNoCache >= cost {
		last, _ = s.account(true)
	} else {
		last = lastNone
	}
	for i := len(s.segs) - 1; i >= 0; i-- {
		g := &s.segs[i]
		g.step = last
		last = s.cells[i*int(steps)+int(last)].from
	}
	s.name()
	s.finalize()
}

// account fills cells with the best account (Viterbi's algorithm) of a job that
// has a cache or has none, and returns the last step of the best and its cost.
func (s *Stages) account(cache bool) (last step, cost int) {
	n := len(s.segs)
	if need := n * int(steps); cap(s.cells) < need {
		s.cells = make([]cell, need, 2*need)
	} else {
		s.cells = s.cells[:need]
	}
	for i := range s.segs {
		g := &s.segs[i]
		for st := range steps {
			best := cell{cost: costNever * maxSegments}
			if i == 0 {
				best.cost = opens(st, s.missed && !s.gap, cache)
			} else {
				for from := range steps {
					c := s.cells[(i-1)*int(steps)+int(from)].cost + moves(from, st, s.segs[i-1].exit, cache)
					if c < best.cost {
						best = cell{cost: c, from: from}
					}
				}
			}
			best.cost += g.denies(st)
			s.cells[i*int(steps)+int(st)] = best
		}
	}
	cost = costNever * maxSegments * 2
	for st := range steps {
		c := s.cells[(n-1)*int(steps)+int(st)].cost
		if s.finished {
			c += closes(st, s.segs[n-1].exit)
		}
		if c < cost {
			last, cost = st, c
		}
	}
	return last, cost
}

// denies is the cost of what is known of the segment against the step.
func (g *segment) denies(st step) (cost int) {
	if g.role == "" {
		return 0
	}
	if g.role != st.role() || g.stage.Final && g.step != st {
		cost += costNever
	}
	for _, r := range g.readings {
		if _, known := roleOf(r.stage); known && !st.is(r.stage) {
			cost += costReading * r.count
		}
	}
	if g.command != "" && !st.is(g.command) {
		cost += costCommand
	}
	if g.git && st != stepGet {
		cost += costGit
	}
	return cost
}

// name turns steps into names, attempts and sources.
func (s *Stages) name() {
	for i := range s.segs {
		g := &s.segs[i]
		if g.role == "" || g.stage.Final {
			continue
		}
		g.stage.Name, g.stage.Source = stepNames[g.step], cimeter.BoundaryOrder
		if g.step.is(g.command) || g.git && g.step == stepGet {
			g.stage.Source = cimeter.BoundaryCommand
		}
		best := 0
		for _, r := range g.readings {
			_, known := roleOf(r.stage)
			// A name that this package does not know counts when it was read twice.
			if r.count > best && (g.step.is(r.stage) || !known && r.count > 1) {
				best = r.count
				g.stage.Name, g.stage.Source = r.stage, cimeter.BoundaryJobList
			}
		}
		g.stage.Attempt = 1
		for j := range i {
			if o := &s.segs[j]; o.role != "" && o.stage.Name == g.stage.Name {
				g.stage.Attempt++
			}
		}
	}
}

// finalize makes stages final: all when the job is over; those before the script
// when it has begun; the first of the script when it ended; any that
// evidence names when it ended and another segment began.
func (s *Stages) finalize() {
	script := len(s.segs)
	for i := range s.segs {
		if s.segs[i].role == cimeter.RoleBuild {
			script = i
			break
		}
	}
	for i := range s.segs {
		g := &s.segs[i]
		later := i < len(s.segs)-1
		switch {
		case s.finished:
			g.stage.Final = true
		case !g.ended || g.role == "":
		case i < script:
			g.stage.Final = script < len(s.segs) || later && g.stage.Source != cimeter.BoundaryOrder
		case g.role == cimeter.RoleBuild:
			g.stage.Final = later || i == script && !s.missed && !s.gap
		default:
			g.stage.Final = later && g.stage.Source != cimeter.BoundaryOrder
		}
	}
}
