package server_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/wire"
)

// A build works on two machines; the server is killed between their records, and
// both agents send theirs again: each is there once, the build is counted once and each
// machine with what its own part cost.
func TestServer_machines(t *testing.T) {
	dir := t.TempDir()
	part := func(machine string, cpu float64) *cimeter.Record {
		r := record(1)
		r.Key, r.CI, r.Server, r.Machine = "jenkins/ci.example.com/app/17", "jenkins", "ci.example.com", machine
		r.Usage.CPUSeconds.Total = cimeter.Some(cpu)
		r.Stages[0].Usage = r.Usage
		return r
	}
	a, b := part("node-1", 1.5), part("node-2", 40)
	send := func(p *process, records ...*cimeter.Record) (statuses []wire.Status) {
		t.Helper()
		var body bytes.Buffer
		for _, r := range records {
			line, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			body.Write(append(line, '\n'))
		}
		resp, err := http.Post("http://"+p.addr+wire.RecordsPath, wire.ContentType(), &body)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer wire.Answer
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.Results) != len(records) {
			t.Fatalf("%d results, %v", len(answer.Results), err)
		}
		for i, r := range answer.Results {
			if r.Key != records[i].Key {
				t.Errorf("result of %s, want of %s", r.Key, records[i].Key)
			}
			statuses = append(statuses, r.Status)
		}
		return statuses
	}
	read := func(p *process, path string) string {
		t.Helper()
		resp, err := http.Get("http://" + p.addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s %v", path, resp.StatusCode, body, err)
		}
		return string(body)
	}
	p := startProcess(t, dir, "")
	if got := send(p, a); got[0] != wire.Stored {
		t.Errorf("the first machine: %v", got)
	}
	if s := read(p, "/metrics"); !strings.Contains(s, `cimeter_builds_total{ci="jenkins",project="group/app",machine="node-1",result="success"} 1`) {
		t.Errorf("node-1 is not counted:\n%s", s)
	}
	p.end(syscall.SIGKILL)
	p = startProcess(t, dir, "")
	defer func() { p.end(syscall.SIGKILL) }()
	if got := send(p, b, a, b); got[0] != wire.Stored || got[1] != wire.Duplicate || got[2] != wire.Duplicate {
		t.Errorf("both again: %v", got)
	}
	if rows := stored(t, p.addr); len(rows) != 2 || rows[a.Key] != 1 || rows[a.Key+"/@node-2"] != 1 {
		t.Errorf("there are %v", rows)
	}
	var all struct {
		Machines []cimeter.Record `json:"machines"`
	}
	if err := json.Unmarshal([]byte(read(p, "/api/v1/builds/"+a.Key+"?machines=true")), &all); err != nil || len(all.Machines) != 2 ||
		all.Machines[0].Machine != "node-1" || all.Machines[1].Usage.CPUSeconds != b.Usage.CPUSeconds {
		t.Errorf("machines of the build: %+v, %v", all.Machines, err)
	}
	if s := read(p, "/metrics"); strings.Contains(s, `cimeter_builds_total{ci="jenkins"`) || !strings.Contains(s, `cimeter_stage_duration_seconds_count{ci="jenkins",project="group/app",machine="node-2",stage="step_script"} 1`) {
		t.Errorf("the build is counted again, or node-2 is not:\n%s", s)
	}
	// node-2's agent was restarted, and tells of a later pod of the build.
	later := part("node-2", 3)
	later.StartedAt, later.EndedAt = b.EndedAt.Add(time.Minute), b.EndedAt.Add(2*time.Minute)
	if got := send(p, later, b, later); got[0] != wire.Stored || got[1] != wire.Duplicate || got[2] != wire.Duplicate {
		t.Errorf("a later pod: %v", got)
	}
	if err := json.Unmarshal([]byte(read(p, "/api/v1/builds/"+a.Key+"?machines=true")), &all); err != nil || len(all.Machines) != 3 {
		t.Errorf("machines of the build with a later pod: %d, %v", len(all.Machines), err)
	}
	var sum struct {
		Builds int     `json:"builds"`
		CPU    float64 `json:"cpu_seconds"`
	}
	if err := json.Unmarshal([]byte(read(p, "/api/v1/summary")), &sum); err != nil || sum.Builds != 1 || sum.CPU != 44.5 {
		t.Errorf("summary %+v, %v: want one build of 44.5 s", sum, err)
	}
	if s := read(p, "/api/v1/machines?from=2026-11-29&to=2026-12-01"); !strings.Contains(s, `"node-1"`) || !strings.Contains(s, `"node-2"`) {
		t.Errorf("totals by machine: %s", s)
	}
}
