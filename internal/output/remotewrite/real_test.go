package remotewrite_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/output/remotewrite"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
	"github.com/cimeter/cimeter/internal/testtools"
)

// scene is a machine that lives for ten seconds and runs one build: three
// rounds, of which the receiver hears nothing before the last one, then the end.
type scene struct {
	begin time.Time
	want  map[string]string // series to its samples, stale markers left out
}

func play(t *testing.T, write string, protocol remotewrite.Protocol) scene {
	t.Helper()
	// Now: receivers refuse what is old.
	sc := scene{begin: time.Now().Add(-20 * time.Second).Truncate(time.Second), want: map[string]string{}}
	tb := tally.New(tally.Options{})
	tb.Info(catalog.BuildInfo, "1.0.0", "7e4d", "go1.26")
	w := series.NewWalker(tb, sc.begin)
	real := output(t, write, remotewrite.Options{Protocol: protocol})
	version := "2.0"
	if protocol == remotewrite.V1 {
		version = "1.0"
	}
	if says, err := real.Check(t.Context()); err != nil || protocol != remotewrite.Auto && says != "takes remote write "+version {
		t.Errorf("check: %q, %v", says, err)
	}
	fake := newReceiver(t, takesOne)
	shadow := output(t, fake.URL, remotewrite.Options{Protocol: remotewrite.V1})
	for second := 1; second <= 7; second += 3 {
		s := tb.Stage(tally.Labels{CI: "gitlab", Project: `group/"app\` + "\xff\n", Machine: "ci-7", Runner: "s_a1b2", Stage: "step_script"})
		s.Add(cimeter.CPUUser, 12_345_678_901)
		s.Add(cimeter.IOWriteBytes, 1<<53-1)
		if second == 7 {
			b := tb.Build(tally.BuildLabels{CI: "gitlab", Project: "group/app", Machine: "ci-7", Runner: "s_a1b2"})
			b.Started()
			b.Ended("success", 6.25, cimeter.Some(0.1))
			s.Ended(5.8, cimeter.Some(uint64(100<<20)), cimeter.Some(0.4))
		}
		at := sc.begin.Add(time.Duration(second)*time.Second + 123*time.Millisecond)
		for _, o := range []*remotewrite.Output{real, shadow} {
			o.Keep(at, w.Families())
		}
	}
	for _, o := range []*remotewrite.Output{real, shadow} {
		sent, err := o.Send(t.Context(), time.Time{}, nil)
		if err != nil || len(sent.Dropped) > 0 {
			t.Fatalf("%+v, %v", sent, err)
		}
		if _, err := o.End(t.Context(), sc.begin.Add(10*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range fake.samples {
		if s.value != "stale" {
			sc.want[s.series] += fmt.Sprint(s.value, "@", s.at, " ")
		}
	}
	if len(sc.want) < 60 {
		t.Fatalf("%d series: want those of a build", len(sc.want))
	}
	return sc
}

func (sc scene) compare(t *testing.T, got map[string]string) {
	t.Helper()
	if maps.Equal(got, sc.want) {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(sc.want)) {
		if got[name] != sc.want[name] {
			t.Errorf("%s has %q, want %q", name, got[name], sc.want[name])
		}
	}
	for name := range got {
		if sc.want[name] == "" {
			t.Errorf("%s was not sent", name)
		}
	}
}

// key names a series as the fake receiver does.
func key(labels map[string]string) string {
	var out []string
	for _, n := range slices.Sorted(maps.Keys(labels)) {
		if n != "__name__" {
			out = append(out, fmt.Sprintf("%s=%q", n, labels[n]))
		}
	}
	return labels["__name__"] + "{" + strings.Join(out, ",") + "}"
}

// Every sample that was sent is in a real Prometheus, with its own time; the
// series have ended, and a counter's rise from 0 is seen whole.
func TestOutput_realPrometheus(t *testing.T) {
	for name, c := range map[string]struct {
		program  testtools.Tool // "" is Debian's
		protocol remotewrite.Protocol
	}{
		"Debian's, which takes 1.0":        {protocol: remotewrite.Auto},
		"a new one, which takes 2.0":       {program: testtools.Prometheus, protocol: remotewrite.V2},
		"a new one, left to find it out":   {program: testtools.Prometheus, protocol: remotewrite.Auto},
		"a new one, sent 1.0 as asked for": {program: testtools.Prometheus, protocol: remotewrite.V1},
	} {
		t.Run(name, func(t *testing.T) {
			program := "prometheus"
			if c.program != "" {
				program = testtools.Path(t, c.program)
			}
			base := startPrometheus(t, program)
			sc := play(t, base+"/api/v1/write", c.protocol)
			var answer struct {
				Data struct {
					Result []struct {
						Metric map[string]string
						Values [][2]any
						Value  [2]any
					}
				}
			}
			query := func(q string) {
				at := fmt.Sprint(sc.begin.Add(11 * time.Second).Unix())
				body := get(t, base+"/api/v1/query?"+url.Values{"query": {q}, "time": {at}}.Encode())
				answer.Data.Result = nil
				if err := json.Unmarshal(body, &answer); err != nil {
					t.Fatal(err)
				}
			}
			query(`{job="cimeter"}[1m]`)
			got := map[string]string{}
			for _, r := range answer.Data.Result {
				for _, v := range r.Values {
					ms := int64(math.Round(v[0].(float64) * 1000))
					f, err := strconv.ParseFloat(v[1].(string), 64)
					if err != nil {
						t.Fatal(err)
					}
					got[key(r.Metric)] += fmt.Sprint(f, "@", ms, " ")
				}
			}
			sc.compare(t, got)

			if query(`{job="cimeter"}`); len(answer.Data.Result) > 0 {
				t.Errorf("%d series have not ended: %v", len(answer.Data.Result), answer.Data.Result[0])
			}
			// From 0 at its start to 3 times 12.345678901 s.
			query(`max(last_over_time(cimeter_stage_cpu_seconds_total{mode="user"}[1m]) - min_over_time(cimeter_stage_cpu_seconds_total{mode="user"}[1m]))`)
			if len(answer.Data.Result) != 1 || answer.Data.Result[0].Value[1] != "37.037036703" {
				t.Errorf("rise of the CPU time: %v, want 37.037036703", answer.Data.Result)
			}
		})
	}
}

func startPrometheus(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%v: want Debian's package prometheus (scripts/setup.sh installs it)", err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(config, []byte("global: {scrape_interval: 1h}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(dir, "log")
	out, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(path, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address=127.0.0.1:0", "--web.enable-remote-write-receiver")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	listening := regexp.MustCompile(`Listening on".* address=(127\.0\.0\.1:\d+)`)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		b, _ := os.ReadFile(log)
		if m := listening.FindSubmatch(b); m != nil {
			base := "http://" + string(m[1])
			if resp, err := http.Get(base + "/-/ready"); err == nil {
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK {
					return base
				}
			}
		}
	}
	b, _ := os.ReadFile(log)
	t.Fatalf("%s did not start:\n%s", path, b)
	return ""
}

// The same in VictoriaMetrics.
func TestOutput_realVictoriaMetrics(t *testing.T) {
	p := testtools.Start(t, testtools.VictoriaMetrics, "-storageDataPath=data", "-httpListenAddr=127.0.0.1:0", "-search.latencyOffset=0")
	base := fmt.Sprintf("http://127.0.0.1:%d", p.Ports(t, "tcp", 1)[0])
	sc := play(t, base+"/api/v1/write", remotewrite.Auto)
	get(t, base+"/internal/force_flush")
	got := map[string]string{}
	d := json.NewDecoder(strings.NewReader(string(get(t, base+"/api/v1/export?"+url.Values{"match[]": {`{job="cimeter"}`}, "reduce_mem_usage": {"1"}}.Encode()))))
	for {
		var line struct {
			Metric     map[string]string
			Values     []*float64
			Timestamps []int64
		}
		if err := d.Decode(&line); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		for i, v := range line.Values {
			if v != nil { // a stale marker is null
				got[key(line.Metric)] += fmt.Sprint(*v, "@", line.Timestamps[i], " ")
			}
		}
	}
	sc.compare(t, got)
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	client := &http.Client{Timeout: time.Minute}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("get %s: %s %v %s", url, resp.Status, err, b)
	}
	return b
}
