package httpapi_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	rows "github.com/cimeter/cimeter/internal/store"
)

// spread puts one build that worked on two machines, and returns its key.
func spread(t *testing.T, kept *intake) string {
	t.Helper()
	var batch []rows.Put
	for _, machine := range []string{"node-1", "node-2"} {
		r := build(90)
		r.Key, r.CI, r.Server, r.Machine, r.Usage = "jenkins/ci.example.com/app/17", "jenkins", "ci.example.com", machine, usage(3)
		r.Trace = &cimeter.Trace{StepSeconds: 1, CPUMillicores: []cimeter.Opt[int64]{cimeter.Some[int64](5)}}
		batch = append(batch, rows.Put{Record: r, ReceivedAt: r.EndedAt})
	}
	if _, err := kept.store.Put(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	return batch[0].Record.Key
}

// What a build did on each of its machines is told where it is asked for, by the build's
// key and by that of each part; of a build of one machine there is nothing to tell.
func TestBuild_machines(t *testing.T) {
	api, in := newServer(t, 2)
	key := spread(t, in)
	for _, of := range []string{key, key + "/@node-1", key + "/@node-2"} {
		w := get(t, api, "/api/v1/builds/"+of+"?machines=true")
		var r struct {
			cimeter.Record
			Machines []cimeter.Record `json:"machines"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || w.Code != 200 {
			t.Fatalf("%s: %d %v %s", of, w.Code, err, w.Body)
		}
		if _, on, ok := strings.Cut(of, "/@"); ok && r.Machine != on {
			t.Errorf("%s is of %s", of, r.Machine)
		}
		if len(r.Machines) != 2 || r.Machines[0].Machine != "node-1" || r.Machines[1].Machine != "node-2" || r.Machines[1].Trace != nil || r.Trace == nil {
			t.Errorf("%s: %s", of, w.Body)
		}
		if s := get(t, api, "/api/v1/builds/"+of, "Accept", "text/plain").Body.String(); !strings.Contains(s, "on node-") || !strings.Contains(s, "all machines") {
			t.Errorf("%s: %s", of, s)
		}
		if s := get(t, api, "/api/v1/builds/"+of).Body.String(); strings.Contains(s, "machines") {
			t.Errorf("%s: nobody asked: %s", of, s)
		}
	}
	if s := get(t, api, "/api/v1/builds/gitlab/gitlab.example.com/0?machines=true").Body.String(); !strings.Contains(s, `"machines":[]`) {
		t.Errorf("a build of one machine: %s", s)
	}
	if w := get(t, api, "/api/v1/builds/"+key+"?machines=yes"); w.Code != 400 {
		t.Errorf("machines=yes: %d", w.Code)
	}
}
