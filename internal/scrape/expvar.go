package scrape

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/series"
)

// maxDepth bounds how deep numbers lie in an object.
const maxDepth = 8

// expvar takes the numbers of a JSON object, named by the way to them with
// underscores between: memstats_Alloc. true is 1 and false 0; lists, texts and
// null are no numbers. What a number means nobody tells, so its kind is unknown.
func (m *maker) expvar(body []byte) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	var page map[string]any
	if err := d.Decode(&page); err != nil {
		return fmt.Errorf("scrape: want a JSON object: %w", cimeter.ErrInvalid)
	}
	m.object("", page, 0)
	return nil
}

func (m *maker) object(prefix string, of map[string]any, depth int) {
	if depth == maxDepth {
		m.skip("value")
		return
	}
	for _, key := range slices.Sorted(maps.Keys(of)) {
		name := prefix + key
		switch v := of[key].(type) {
		case map[string]any:
			m.object(name+"_", v, depth+1)
		case json.Number:
			f, err := v.Float64()
			if err != nil || !finite(f) {
				m.skip("value")
				continue
			}
			m.number(name, f)
		case bool:
			f := 0.0
			if v {
				f = 1
			}
			m.number(name, f)
		}
	}
}

func (m *maker) number(name string, v float64) {
	if name = series.MetricName(name); m.wanted(name) {
		m.add(name, "", series.Unknown, series.Point{Value: v})
	}
}
