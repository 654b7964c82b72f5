package export

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cimeter/cimeter/internal/series"
)

// Whose says who sends, for outputs whose series must say so.
type Whose struct {
	CI      string    // kind of CI system; may be empty
	Server  string    // name of the server; may be empty
	Machine string    // name of the machine; may be empty
	Started time.Time // when the counters were 0
}

// Instance names one of many senders of a kind: the server, or else the machine.
// Empty is not known.
func (w Whose) Instance() string {
	if w.Server != "" {
		return w.Server
	}
	return w.Machine
}

// Opening is an output that is chosen but not open yet: of the library, where the
// author's program says which outputs there are before anything runs. Make it with
// Later.
type Opening struct {
	name     string
	interval time.Duration
	open     func(Whose) (Output, func(), error)
}

// Later returns an output of metrics that open opens. Interval is between two
// sends; 0 is 10 s. The function that open returns is called after the last send.
func Later(name string, interval time.Duration, open func(Whose) (Output, func(), error)) Opening {
	return Opening{name, interval, open}
}

// Open opens it. The error says that it cannot be made, as for an address that is
// none.
func (o Opening) Open(w Whose) (Target, error) {
	if o.open == nil {
		return Target{}, fmt.Errorf("output %q: want one that a function of the library made", o.name)
	}
	out, closer, err := o.open(w)
	if err != nil {
		return Target{}, fmt.Errorf("output %s: %w", o.name, err)
	}
	return Target{Name: o.name, Metrics: out, Interval: o.interval, Close: closer}, nil
}

// Labels returns what is given, and the defaults whose names are not given, by
// name. One without a value is left out.
func Labels(given, defaults map[string]string) (labels []series.Label) {
	all := maps.Clone(defaults)
	maps.Copy(all, given)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if all[name] != "" {
			labels = append(labels, series.Label{Name: name, Value: all[name]})
		}
	}
	return labels
}
