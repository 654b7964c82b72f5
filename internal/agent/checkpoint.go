package agent

import (
	"math/rand/v2"
	"time"
)

// checkpointEvery is the longest that a running build is not checkpointed, though
// none of its stages begins or ends. An agent that comes back goes on from an old
// one as well as from a new one: the kernel kept counting. Only what a container
// used that also ends while no agent runs is lost back to the last.
const checkpointEvery = 4 * time.Minute

// promptParts is up to how many parts a build is checkpointed whenever one of
// them begins or ends. One with more, which no CI system makes of a usual job,
// waits for the next round: the work of writing all of it grows with them.
const promptParts = 64

// changed notes that something of a build ended or began.
func (m *meter) changed(key string, now time.Time) {
	if _, known := m.due[key]; !known || m.ledger.Parts(key) <= promptParts {
		m.checkpoint(key, now)
		return
	}
	m.due[key] = now
}

// checkpoint hands the state of a running build to the writer.
func (m *meter) checkpoint(key string, now time.Time) {
	state, err := m.ledger.Checkpoint(key)
	if err != nil {
		delete(m.due, key) // not running any more
		return
	}
	// Spread: after a start all builds would be written in the same round.
	m.due[key] = now.Add(checkpointEvery/2 + rand.N(checkpointEvery/2))
	m.writer.checkpoint(key, state)
}

// checkpoints hands over the builds that are due.
func (m *meter) checkpoints(now time.Time) {
	for key, due := range m.due {
		if !now.Before(due) {
			m.checkpoint(key, now)
		}
	}
}
