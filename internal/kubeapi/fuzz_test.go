package kubeapi

import (
	"strings"
	"testing"

	"github.com/cimeter/cimeter/internal/ci/github"
)

// Whatever a server sends, it is told of no other runner, and no job is known that
// has no repository and run.
func FuzzFollow(f *testing.F) {
	f.Add(`{"type": "ADDED", "object": {"metadata": {"name": "r", "namespace": "ns"}, "status": {"workflowRunId": 7, "jobRepositoryName": "a/b"}}}`)
	f.Add("{\"type\": \"DELETED\", \"object\": {\"metadata\": {\"name\": \"r\", \"namespace\": \"ns\"}}}\n\n")
	f.Add(`{"type": "ERROR", "object": {"code": -1}}`)
	f.Add("null")
	f.Fuzz(func(t *testing.T, s string) {
		n := 0
		_ = follow(strings.NewReader(s), "ns", "r", func(e github.Ephemeral) {
			n++
			if e.Known() && (e.RunID == "" || !strings.Contains(e.Repository, "/")) {
				t.Errorf("known: %+v", e)
			}
		})
		if n > strings.Count(s, "\n")+1 {
			t.Errorf("%d events", n)
		}
	})
}
