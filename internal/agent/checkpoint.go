package agent

import "time"

// checkpointEvery is how often a running build is checkpointed though none of
// its stages ended: what is lost of it with the agent is bounded by this, and so
// is the disk's work.
const checkpointEvery = 30 * time.Second

// checkpoint hands the state of a running build to the writer.
func (m *meter) checkpoint(key string, now time.Time) {
	state, err := m.ledger.Checkpoint(key)
	if err != nil {
		delete(m.due, key) // not running any more
		return
	}
	m.due[key] = now.Add(checkpointEvery)
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
