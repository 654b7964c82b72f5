package queue

import "github.com/cimeter/cimeter"

// Moved is a build that has another key now: some CI servers number a build anew when
// a worker takes it, and agents know the new number alone.
type Moved struct {
	From, To string
}

// maxMoved is how many of them are remembered.
const maxMoved = 100_000

// moves takes up what moved and returns the builds that could not, new key by old:
// the new one is another's, whose it stays.
func (b *Board) moves(s *server, r *Report) (stay map[string]string) {
	for _, m := range r.Moved {
		if m.From == "" || m.To == "" || m.From == m.To || len(m.From) > maxKey || len(m.To) > maxKey {
			b.dropped.Unusable++
			continue
		}
		switch was, ok := s.moved[m.To]; {
		case ok && was != m.From:
			if stay == nil {
				stay = map[string]string{}
			}
			stay[m.To] = m.From
			continue
		case !ok:
			s.remember(m)
		}
		b.move(s, r, m)
	}
	return stay
}

func (b *Board) move(s *server, r *Report, m Moved) {
	s.ended[m.From] = latest(s.ended[m.From], r.At) // what comes of it late brings it not back
	e := s.jobs[m.From]
	if e == nil {
		return
	}
	delete(s.jobs, m.From)
	for i := range e.told {
		e.told[i].value.Key = m.To
	}
	to := s.jobs[m.To]
	if _, over := s.ended[m.To]; over || to != nil {
		b.builds--
	} else {
		s.jobs[m.To] = e
	}
	if to == nil {
		return
	}
	for _, t := range e.told {
		to.told = learn(to.told, t, fillJob)
	}
	for i, at := range e.firsts {
		if f := &to.firsts[i]; f.IsZero() || !at.IsZero() && at.Before(*f) {
			*f = at
		}
	}
	to.polled = latest(to.polled, e.polled)
	to.spent.NoWorker += e.spent.NoWorker
	to.spent.NoSlot += e.spent.NoSlot
}

// remember notes a move. Those of builds that are forgotten go first.
func (s *server) remember(m Moved) {
	if len(s.moved) >= maxMoved {
		for to := range s.moved {
			if _, over := s.ended[to]; s.jobs[to] == nil && !over {
				delete(s.moved, to)
			}
		}
		if len(s.moved) >= maxMoved {
			clear(s.moved)
		}
	}
	s.moved[m.To] = m.From
}

// keyed returns a job under the key that it keeps.
func keyed(j *cimeter.Job, stay map[string]string) *cimeter.Job {
	from, ok := stay[j.Key]
	if !ok {
		return j
	}
	k := *j
	k.Key = from
	return &k
}
