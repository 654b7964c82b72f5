package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
)

// fakeGitLab has one merge request without notes, and the log of one job. It does what
// a note tells it to, as GitLab does.
type fakeGitLab struct {
	*httptest.Server
	mu     sync.Mutex
	at     time.Time // start of the job's script
	sha    string
	note   string
	writes int
	reads  int      // of the log
	did    []string // commands that it did
}

func (g *fakeGitLab) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	say := func(v any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v)
	}
	const project = "/api/v4/projects/group%2Fapp"
	switch path := r.Method + " " + r.URL.EscapedPath(); path {
	case "GET /api/v4/user":
		say(map[string]any{"id": 7})
	case "GET " + project + "/repository/commits/" + g.sha + "/merge_requests":
		say([]any{map[string]any{"iid": 5, "state": "opened", "sha": g.sha, "target_branch": "main"}})
	case "GET " + project + "/merge_requests/5/notes":
		say([]any{})
	case "POST " + project + "/merge_requests/5/notes", "PUT " + project + "/merge_requests/5/notes/100":
		var body struct{ Body string }
		_ = json.NewDecoder(r.Body).Decode(&body)
		g.note, g.writes = body.Body, g.writes+1
		for line := range strings.Lines(body.Body) {
			if strings.HasPrefix(strings.TrimSpace(line), "/") {
				g.did = append(g.did, line)
			}
		}
		say(map[string]any{"id": 100})
	case "GET " + project + "/jobs/4242/trace":
		g.reads++
		unix := g.at.Unix()
		fmt.Fprintf(w, "section_start:%d:compile\r\x1b[0KCompile\npassword is hunter2\nsection_end:%d:compile\r\x1b[0K\n", unix+10, unix+50)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (g *fakeGitLab) told() (note string, writes, reads int, did []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.note, g.writes, g.reads, g.did
}

// A job's merge request, which its branch alone tells, gets its note, and its log is
// read once; when GitLab is gone, pages, API and command line have the sections yet.
func TestServer_besideGitLab(t *testing.T) {
	g := &fakeGitLab{at: time.Now().Add(-3 * time.Minute).Truncate(time.Second), sha: strings.Repeat("7e", 20)}
	g.Server = httptest.NewServer(g)
	defer g.Close()
	dir := t.TempDir()
	data, token, conf := filepath.Join(dir, "data"), filepath.Join(dir, "token"), filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(token, []byte("glpat-x"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("ci_servers:\n  - {kind: gitlab, url: %s, token_file: %s, sections: [group/*], notes: {token_file: %s, merge_requests: [group/*], always: [group/*]}}\n", g.URL, token, token)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	host := ci.ServerOf(g.URL)
	key := cimeter.BuildKey("gitlab", host, "4242")
	end := g.at.Add(100 * time.Second)
	trace := &cimeter.Trace{StepSeconds: 10}
	for i := range 10 {
		trace.CPUMillicores = append(trace.CPUMillicores, cimeter.Some(int64(i%2*1000)))
	}
	stage := func(name string, from, to time.Time) cimeter.Stage {
		return cimeter.Stage{Name: name, Attempt: 1, Boundary: cimeter.BoundaryContainer, StartedAt: from, EndedAt: to,
			Usage: cimeter.Usage{WallSeconds: to.Sub(from).Seconds(), CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(5.0)}}}
	}
	r := &cimeter.Record{Schema: 1, Complete: true, Gaps: []cimeter.Gap{}, StartedAt: g.at, EndedAt: end, Trace: trace,
		Build:  cimeter.Build{Key: key, CI: "gitlab", Server: host, Project: "group/app", Number: "4242", Name: "/merge\n/close", Attempt: 1, Pipeline: "991", Ref: "/approve", SHA: g.sha},
		Usage:  cimeter.Usage{WallSeconds: 100, CPUSeconds: cimeter.CPUSeconds{Total: cimeter.Some(10.0)}},
		Stages: []cimeter.Stage{stage("get_sources", g.at, g.at.Add(5*time.Second)), stage("step_script", g.at.Add(5*time.Second), end)}}
	if err := os.MkdirAll(filepath.Join(data, "store"), 0o700); err != nil {
		t.Fatal(err)
	}
	kept, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(data, "store", "cimeter.db")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kept.Put(t.Context(), []store.Put{{Record: r, ReceivedAt: end}}); err != nil {
		t.Fatal(err)
	}
	// What the queue was before this process, some of it days ago.
	var past []queue.KeptPoint
	for i := range int64(600) {
		past = append(past, queue.KeptPoint{Server: host, Step: queue.CoarseStep, Point: queue.Point{At: time.Now().Unix() - i*600, Waiting: 42, Running: 7, Slots: 8}})
	}
	if err := kept.PutQueuePoints(t.Context(), past, nil); err != nil {
		t.Fatal(err)
	}
	if err := kept.Close(); err != nil {
		t.Fatal(err)
	}
	p := startDaemon(t, "server", "--config", conf, "--listen", "127.0.0.1:0", "--data", data)
	p.get("/api/v1/sections/"+key+"?kept=true", "", `"name":"compile"`)
	p.get("/queue?t=7d", "", `<td class="n">42.0</td><td class="n">7.00</td><td class="n">8.00</td>`)
	p.get("/metrics", "", `cimeter_server_logs_read_total{server="`+host+`",result="kept"} 1`)
	for {
		note, writes, reads, did := g.told()
		if writes == 0 {
			select {
			case <-t.Context().Done():
				t.Fatal("no note")
			case <-time.After(20 * time.Millisecond):
				continue
			}
		}
		if writes != 1 || reads != 1 || did != nil || !strings.Contains(note, "#991") || !strings.Contains(note, "1 job") {
			t.Errorf("%d writes, %d reads, commands %q: %s", writes, reads, did, note)
		}
		break
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	g.Close()
	p = startDaemon(t, "server", "--listen", "127.0.0.1:0", "--data", data) // with no CI server at all
	p.get("/builds/"+key, "", "Inside the stages")
	p.get("/api/v1/sections/"+key, "", `"name":"compile"`)
	p.get("/api/v1/builds?format=ndjson&sections=true", "", `"sections":{"source":"trace"`)
	for _, args := range [][]string{{"summary", key, "--json"}, {"builds", "--format", "json", "--sections"}, {"builds", "--format", "ndjson", "--sections"}} {
		out, err := exec.Command("cimeter", append(args, "--server", p.base)...).CombinedOutput()
		if text := strings.Join(strings.Fields(string(out)), ""); err != nil || strings.Count(text, `"sections":{"source":"trace"`) != 1 || !strings.Contains(text, `"name":"compile"`) {
			t.Errorf("%q: %v: %s: want it with sections", args, err, out)
		}
	}
	if out, err := exec.Command("cimeter", "builds", "--format", "ndjson", "--server", p.base).CombinedOutput(); err != nil || strings.Contains(string(out), `"sections"`) {
		t.Errorf("%v: %s: want the record alone", err, out)
	}
	out, err := exec.Command("cimeter", "summary", "--server", p.base, key).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\n> compile ") || !strings.Contains(string(out), "\n> (the rest) ") {
		t.Errorf("%v: %s", err, out)
	}
	if err := p.end(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := filepath.Walk(data, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		b, err := io.ReadAll(f)
		if bytes.Contains(b, []byte("hunter2")) {
			t.Errorf("%s has the text of the log", path)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}
