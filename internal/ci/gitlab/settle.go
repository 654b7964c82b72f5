package gitlab

import "github.com/cimeter/cimeter"

// settle accounts for the job anew and makes final what can be. What was known
// of the segments before from is as it was.
func (s *Stages) settle(from int) {
	s.valid = min(s.valid, from)
	if len(s.segs) == 0 {
		return
	}
	// Of two accounts that cost the same, the one with a cache is taken.
	table := 0
	last, cost := s.account(table)
	if lastNone, costNone := s.account(1); costNone+costNoCache < cost {
		table, last = 1, lastNone
	}
	s.valid = len(s.segs)
	for i := len(s.segs) - 1; i >= 0; i-- {
		s.segs[i].step = last
		last = s.cells[table][i][last].from
	}
	s.name()
	s.finalize()
}

// account fills a table of cells (0 for a job that has a cache, 1 for one that
// has none) with the best account of the job up to each segment and step
// (Viterbi's algorithm), and returns the last step of the best of all and its cost.
func (s *Stages) account(table int) (last step, cost int) {
	cache := table == 0
	n := len(s.segs)
	for len(s.cells[table]) < n {
		s.cells[table] = append(s.cells[table], [steps]cell{})
	}
	cells := s.cells[table]
	for i := s.valid; i < n; i++ {
		g := &s.segs[i]
		for st := range steps {
			best := cell{cost: costNever * maxSegments * 2}
			if i == 0 {
				best.cost = opens(st, s.missed && !s.gap, cache)
			} else {
				for from := range steps {
					c := cells[i-1][from].cost + moves(from, st, s.segs[i-1].exit, cache)
					if c < best.cost {
						best = cell{cost: c, from: from}
					}
				}
			}
			best.cost += g.denies(st)
			cells[i][st] = best
		}
	}
	cost = costNever * maxSegments * 4
	for st := range steps {
		c := cells[n-1][st].cost
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
		if g.stage.Final {
			continue
		}
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
		if g.stage.Final {
			s.valid = min(s.valid, i) // it denies every other step from now on
		}
	}
}
