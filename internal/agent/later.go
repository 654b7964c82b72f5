package agent

import "time"

// patience is how long after one inspection of a container of unknown identity the
// next is: soon where its runner waits for a build.
func (k *known) patience() time.Duration {
	if k.identity.Later {
		return askAfter
	}
	return 10 * askAfter
}

// waitLater forgets what a container has spent whose runner still waits for a build.
func (m *meter) waitLater(k *known, now time.Time) {
	for _, s := range k.segments {
		m.ledger.Restart(s, now)
	}
}

// askLast asks once more whose a container was that ended before that was known.
func (m *meter) askLast(k *known, now time.Time) {
	if k.stand == nothing && k.identity.Later && len(m.engines) > 0 {
		m.ask(k, now)
	}
}
