package attrib

import "time"

// RunningBuild is Running for one build; false: no build of that key runs.
func (l *Ledger) RunningBuild(key string, t time.Time) (Running, bool) {
	b := l.builds[key]
	if b == nil {
		return Running{}, false
	}
	r := Running{Record: b.record(t), MemoryBytes: b.Account.Now[levelMemory]}
	for _, p := range b.parts {
		if !p.Ended.IsZero() || p.Alongside {
			continue
		}
		if r.Stage = p.Name; !p.Decided {
			r.Stage, _, _ = b.guess(&p.PartState)
		}
	}
	return r, true
}
