package gitlab_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/gitlab"
)

func TestAppendJobStates(t *testing.T) {
	page := gitlab.JobPage{Server: "gitlab.example.com", Project: "group/app", Job: "5001"}
	tests := []struct {
		name, in string
		want     []gitlab.JobState
		bad      int
	}{
		{"empty", "", nil, 0},
		{"empty lines", "\n\r\n \n", nil, 0},
		{"pending", "url=https://gitlab.example.com/group/app/-/jobs/5001 state=pending stage= executor_stage=prepare duration=91.232568ms\n",
			[]gitlab.JobState{{JobPage: page, State: "pending", ExecutorStage: "prepare", Duration: 91232568}}, 0},
		{"running, no newline at the end", "url=https://gitlab.example.com/group/app/-/jobs/5001 state=running stage=get_sources executor_stage=docker_run duration=1m5.3s",
			[]gitlab.JobState{{JobPage: page, State: "running", Stage: "get_sources", ExecutorStage: "docker_run", Duration: 65300 * time.Millisecond}}, 0},
		{"other order, unknown key, carriage return", "queued=1 stage=step_script url=https://gitlab.example.com/group/app/-/jobs/5001 \r\n",
			[]gitlab.JobState{{JobPage: page, Stage: "step_script"}}, 0},
		{"bad lines among good ones", "url=x state=running\nstate=running stage=x\nurl=https://gitlab.example.com/group/app/-/jobs/5001\nurl=https://gitlab.example.com/group/app/-/jobs/5001 duration=soon\nurl=https://gitlab.example.com/group/app/-/jobs/5001 duration=-1s\n",
			[]gitlab.JobState{{JobPage: page}}, 4},
		{"a page of HTML", "<!doctype html>\n<html>\n", nil, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, bad := gitlab.AppendJobStates(nil, []byte(tt.in))
			if !reflect.DeepEqual(got, tt.want) || bad != tt.bad {
				t.Errorf("got %+v, %d bad\nwant %+v, %d", got, bad, tt.want, tt.bad)
			}
		})
	}
	before := []gitlab.JobState{{State: "kept"}}
	if got, _ := gitlab.AppendJobStates(before, []byte(tests[3].in)); len(got) != 2 || got[0].State != "kept" {
		t.Errorf("did not append: %+v", got)
	}
}

func FuzzAppendJobStates(f *testing.F) {
	f.Add([]byte("url=https://h/g/a/-/jobs/1 state=running stage=get_sources executor_stage=docker_run duration=5.3s\n"))
	f.Add([]byte("url= url=http://h/g/-/jobs/1\n\n=\n duration=1h url\xff=\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		jobs, bad := gitlab.AppendJobStates(nil, b)
		if lines := strings.Count(string(b), "\n") + 1; len(jobs)+bad > lines {
			t.Errorf("%d jobs and %d bad lines of %d lines", len(jobs), bad, lines)
		}
		for _, j := range jobs {
			if j.Job == "" || j.Server == "" || j.Duration < 0 {
				t.Errorf("job %+v", j)
			}
		}
	})
}

func TestJobListFetch(t *testing.T) {
	const line = "url=https://gitlab.example.com/group/app/-/jobs/5001 state=running stage=get_sources executor_stage=docker_run duration=5.3s\n"
	tests := []struct {
		name   string
		answer func(http.ResponseWriter)
		jobs   int
		want   error
	}{
		{"list", func(w http.ResponseWriter) {
			w.Header().Set("X-List-Version", "2")
			io.WriteString(w, line+line)
		}, 2, nil},
		{"no jobs", func(http.ResponseWriter) {}, 0, nil},
		{"one line is bad", func(w http.ResponseWriter) { io.WriteString(w, "bad\n"+line) }, 1, nil},
		{"not a list", func(w http.ResponseWriter) { io.WriteString(w, "<html>") }, 0, cimeter.ErrInvalid},
		{"not found", func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) }, 0, cimeter.ErrUnavailable},
		{"longer than the bound", func(w http.ResponseWriter) {
			io.WriteString(w, strings.Repeat(line, 1+(1<<20)/len(line)))
		}, (1 << 20) / len(line), nil},
		{"cut off", func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "1000")
			io.WriteString(w, line)
		}, 0, cimeter.ErrUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet || r.URL.Path != "/debug/jobs/list" {
					t.Errorf("asked %s %s", r.Method, r.URL)
				}
				tt.answer(w)
			}))
			defer srv.Close()
			l := gitlab.JobList{URL: srv.URL + "/debug/jobs/list", Client: srv.Client()}
			jobs, err := l.Fetch(context.Background(), nil)
			if len(jobs) != tt.jobs || !errors.Is(err, tt.want) {
				t.Errorf("got %d jobs, %v, want %d, %v", len(jobs), err, tt.jobs, tt.want)
			}
		})
	}
}

func TestJobListFetchErrors(t *testing.T) {
	const secret = "planted-and-never-told"
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		url  string
		want error
	}{
		"nobody answers": {context.Background(), strings.Replace(gone.URL, "http://", "http://user:"+secret+"@", 1) + "/debug/jobs/list?token=" + secret, cimeter.ErrUnavailable},
		"cancelled":      {cancelled, "http://user:" + secret + "@127.0.0.1:1/debug/jobs/list", cimeter.ErrUnavailable},
		"no URL":         {context.Background(), "http://user:" + secret + "@%zz/", cimeter.ErrInvalid},
		"no scheme":      {context.Background(), "//user:" + secret + "@127.0.0.1:1/", cimeter.ErrUnavailable},
	} {
		l := gitlab.JobList{URL: tt.url}
		_, err := l.Fetch(tt.ctx, nil)
		if !errors.Is(err, tt.want) {
			t.Errorf("%s: error %v, want %v", name, err, tt.want)
		}
		if err != nil && (strings.Contains(err.Error(), secret) || !strings.HasPrefix(err.Error(), "list jobs of ")) {
			t.Errorf("%s: error %q", name, err)
		}
	}
}
