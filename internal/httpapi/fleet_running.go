package httpapi

import (
	"fmt"
	"net/http"
	"sync"

	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/recordjson"
	"github.com/cimeter/cimeter/internal/wire"
)

// fleetRunning answers GET /api/v1/running of a server: what runs on all machines,
// but for those that are away. The JSON of what an agent told is kept until it
// tells something else: ten thousand builds are asked for more often than each
// of them changes, and by many.
type fleetRunning struct {
	agents func() []Agent
	build  func([]byte, *runningBuild) ([]byte, error)

	mu    sync.Mutex
	known map[string]*runningOf // by agent
	last  int                   // bytes of the last answer
	buf   []byte                // for one agent's
}

type runningBuild struct {
	wire.Running
	Machine string      `json:"machine"`
	Now     *BuildRates `json:"now,omitempty"`
}

// runningOf is the builds of one agent, as JSON joined by commas. It is of these
// slices: nobody changes what they lead to.
type runningOf struct {
	running *wire.Running // the first
	builds  *BuildRates   // the first, nil of none
	n       int
	machine string
	json    []byte
}

func newFleetRunning(agents func() []Agent) *fleetRunning {
	return &fleetRunning{agents: agents, build: recordjson.Of[runningBuild]()}
}

func (f *fleetRunning) serve(w http.ResponseWriter, r *http.Request) error {
	if _, err := parseQuery(r.URL.RawQuery, func(string) bool { return false }); err != nil {
		return err
	}
	b, err := f.answer(f.agents())
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	return writeBytes(w, r, "application/json", b)
}

func (f *fleetRunning) answer(agents []Agent) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := make(map[string]*runningOf, len(agents))
	b := make([]byte, 0, f.last+f.last/16+64)
	b = append(b, `{"builds":[`...)
	first := true
	for i := range agents {
		a := &agents[i]
		if a.Away || len(a.Running) == 0 {
			continue
		}
		of := f.known[a.Agent]
		if of == nil || !of.is(a) {
			var err error
			if of, err = f.encode(a); err != nil {
				return nil, err
			}
		}
		known[a.Agent] = of
		if !first {
			b = append(b, ',')
		}
		first = false
		b = append(b, of.json...)
	}
	f.known = known
	b = append(b, "]}\n"...)
	f.last = len(b)
	return b, nil
}

func (of *runningOf) is(a *Agent) bool {
	return of.running == &a.Running[0] && of.n == len(a.Running) && of.builds == firstOf(a.Builds) && of.machine == a.Machine
}

func firstOf(builds []BuildRates) *BuildRates {
	if len(builds) == 0 {
		return nil
	}
	return &builds[0]
}

func (f *fleetRunning) encode(a *Agent) (*runningOf, error) {
	b := f.buf[:0]
	for i := range a.Running {
		one := runningBuild{a.Running[i], a.Machine, nil}
		if i < len(a.Builds) && (a.Builds[i].CPUCores.Known || a.Builds[i].IOBytesPerSecond.Known || a.Builds[i].NetworkBytesPerSecond.Known) {
			one.Now = &a.Builds[i]
		}
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = f.build(b, &one); err != nil {
			return nil, err
		}
	}
	f.buf = b
	return &runningOf{&a.Running[0], firstOf(a.Builds), len(a.Running), a.Machine, display.JSON(b)}, nil
}
