package testdocker

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Engine stands in for a Docker Engine where a test makes cgroups itself: it
// answers version, list, inspection and events about containers that it is
// told of, over a unix socket, and can be made to say nothing of some.
type Engine struct {
	socket string

	mu     sync.Mutex
	boxes  map[string]*Box
	order  []string
	events []event
	more   chan struct{} // closed at the next event
}

// Box is a container as the engine tells of it. Its identity does not change.
type Box struct {
	ID                string // 64 hexadecimal digits
	Name              string
	Labels            map[string]string
	Env               []string
	Silent            bool     // no event tells of its birth
	Binds             []string // paths of this machine that are mounted into it
	Volumes, Networks []string // by name

	created, started time.Time
	state            string
	pid              int
}

type event struct {
	at   time.Time
	line []byte
}

// NewEngine serves a stand-in for an engine until tb ends.
func NewEngine(tb testing.TB) *Engine {
	tb.Helper()
	dir, err := os.MkdirTemp("", "cimeter-engine-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	e := &Engine{socket: filepath.Join(dir, "docker.sock"), boxes: map[string]*Box{}, more: make(chan struct{})}
	l, err := net.Listen("unix", e.socket)
	if err != nil {
		tb.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/_ping", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.44")
		w.Header().Set("Ostype", "linux")
	})
	mux.HandleFunc("GET /{api}/version", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"Version": "0.0.0-stand-in", "ApiVersion": "1.44", "MinAPIVersion": "1.24", "Os": "linux"})
	})
	mux.HandleFunc("GET /{api}/containers/json", e.list)
	mux.HandleFunc("GET /{api}/containers/{id}/json", e.inspect)
	mux.HandleFunc("GET /{api}/events", e.follow)
	srv := &http.Server{Handler: mux}
	go srv.Serve(l)
	tb.Cleanup(func() { srv.Close() })
	return e
}

// Host is the engine's address, as the -H flag takes it.
func (e *Engine) Host() string { return "unix://" + e.socket }

// Create tells of a new container.
func (e *Engine) Create(b *Box) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b.created, b.state = time.Now(), "created"
	e.boxes[b.ID] = b
	e.order = append(e.order, b.ID)
	e.tell(b, "create", nil)
}

// Start tells that a container's process runs.
func (e *Engine) Start(b *Box, pid int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b.started, b.state, b.pid = time.Now(), "running", pid
	e.tell(b, "start", nil)
}

// Die tells that a container's process ended.
func (e *Engine) Die(b *Box, code int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b.state, b.pid = "exited", 0
	e.tell(b, "die", map[string]string{"exitCode": strconv.Itoa(code)})
}

// Destroy tells that a container is no more.
func (e *Engine) Destroy(b *Box) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.boxes, b.ID)
	e.tell(b, "destroy", nil)
}

// tell keeps an event; the lock is held.
func (e *Engine) tell(b *Box, action string, more map[string]string) {
	if b.Silent && (action == "create" || action == "start") {
		return
	}
	attributes := map[string]string{"name": b.Name, "image": Image}
	for _, m := range []map[string]string{b.Labels, more} {
		for k, v := range m {
			attributes[k] = v
		}
	}
	now := time.Now()
	line, err := json.Marshal(map[string]any{
		"Type": "container", "Action": action, "Actor": map[string]any{"ID": b.ID, "Attributes": attributes},
		"scope": "local", "time": now.Unix(), "timeNano": now.UnixNano(),
	})
	if err != nil {
		return // maps of strings always encode
	}
	e.events = append(e.events, event{at: now, line: append(line, '\n')})
	close(e.more)
	e.more = make(chan struct{})
}

func (e *Engine) list(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := []any{}
	for _, id := range e.order {
		b := e.boxes[id]
		if b == nil {
			continue
		}
		all = append(all, map[string]any{
			"Id": b.ID, "Names": []string{"/" + b.Name}, "Image": Image, "Created": b.created.Unix(), "State": b.state,
			"Labels": b.Labels, "HostConfig": map[string]any{"NetworkMode": "host"},
			"NetworkSettings": map[string]any{"Networks": map[string]any{}},
		})
	}
	answer(w, all)
}

func (e *Engine) inspect(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	b := e.boxes[r.PathValue("id")]
	if b == nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"message": "No such container: %s"}`, r.PathValue("id"))
		return
	}
	mounts, networks := []any{}, map[string]any{}
	for _, path := range b.Binds {
		mounts = append(mounts, map[string]any{"Type": "bind", "Source": path, "Destination": path})
	}
	for _, name := range b.Volumes {
		mounts = append(mounts, map[string]any{"Type": "volume", "Name": name, "Source": "/volumes/" + name, "Destination": "/" + name})
	}
	for _, name := range b.Networks {
		networks[name] = map[string]any{}
	}
	answer(w, map[string]any{
		"Mounts": mounts,
		"Id":     b.ID, "Name": "/" + b.Name, "Created": b.created.Format(time.RFC3339Nano),
		"State":           map[string]any{"Status": b.state, "Running": b.state == "running", "Pid": b.pid, "StartedAt": b.started.Format(time.RFC3339Nano)},
		"Config":          map[string]any{"Image": Image, "Labels": b.Labels, "Env": b.Env},
		"HostConfig":      map[string]any{"NetworkMode": "host"},
		"NetworkSettings": map[string]any{"Networks": networks},
	})
}

// follow streams the events from a moment on.
func (e *Engine) follow(w http.ResponseWriter, r *http.Request) {
	since := time.Now()
	if s := r.URL.Query().Get("since"); s != "" {
		seconds, fraction, _ := strings.Cut(s, ".")
		n, err := strconv.ParseInt(seconds, 10, 64)
		frac, err2 := strconv.ParseInt((fraction + "000000000")[:9], 10, 64)
		if err != nil || err2 != nil {
			http.Error(w, `{"message": "since is no time"}`, http.StatusBadRequest)
			return
		}
		since = time.Unix(n, frac)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	for next, first := 0, true; ; first = false {
		e.mu.Lock()
		fresh, more := e.events[next:], e.more
		next = len(e.events)
		e.mu.Unlock()
		for _, v := range fresh {
			if first && v.at.Before(since) {
				continue // what comes from now on is told whatever the clock says
			}
			if _, err := w.Write(v.line); err != nil {
				return
			}
		}
		if err := flush.Flush(); err != nil {
			return
		}
		select {
		case <-more:
		case <-r.Context().Done():
			return
		}
	}
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the client has gone
}
