package remotewrite

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cimeter/cimeter/internal/protoappend"
	"github.com/cimeter/cimeter/internal/series"
)

// Field numbers of prompb/remote.proto and prompb/types.proto (1.0), and of
// prompb/io/prometheus/write/v2/types.proto (2.0), in the repository of Prometheus.
const (
	oneSeries, oneMetadata = 1, 3
	oneLabels, samplesIn   = 1, 2
	labelName1, labelText  = 1, 2
	value, timestamp       = 1, 2
	metaKind               = 1
	metaFamily             = 2
	metaHelp1, metaUnit1   = 4, 5

	twoSymbols, twoSeries = 4, 5
	twoRefs, twoMetadata  = 1, 5
	startTimestamp        = 3
	metaHelp2, metaUnit2  = 3, 4
)

// metadataEvery is how often a family of 1.0 is described anew: receivers keep
// that in memory.
const metadataEvery = 5 * 60 * 1000 // ms

// encoder makes requests. What it returns holds until the next one.
type encoder struct {
	b       []byte
	request uint64
	items   []item
	order   []*one
	refs    []uint32
	symbols map[string]uint32
	texts   []string
	about   []*family // described in the request
	at      int64
}

// item is a sample of the request that is being made, with the next one of its series.
type item struct {
	at    int64
	value float64
	next  int32
}

// encode makes a request in which each series stands once, with its samples in
// order of time.
func (e *encoder) encode(batches []batch, two bool) []byte {
	e.request++
	e.items, e.order, e.about, e.b = e.items[:0], e.order[:0], e.about[:0], e.b[:0]
	for _, b := range batches {
		e.at = b.at
		for _, s := range b.samples {
			e.add(s.of, item{at: b.at, value: s.value, next: -1})
		}
	}
	if two {
		e.two()
	} else {
		e.one()
	}
	return e.b
}

func (e *encoder) add(s *one, i item) {
	at := int32(len(e.items))
	e.items = append(e.items, i)
	if s.request != e.request {
		s.request, s.first = e.request, at
		e.order = append(e.order, s)
	} else {
		e.items[s.last].next = at
	}
	s.last = at
}

func (e *encoder) one() {
	for _, s := range e.order {
		var at, inner int
		e.b, at = protoappend.Open(e.b, oneSeries)
		s.each(func(name, text string) {
			e.b, inner = protoappend.Open(e.b, oneLabels)
			e.b = protoappend.String(e.b, labelName1, name)
			e.b = protoappend.String(e.b, labelText, text)
			e.b = protoappend.Close(e.b, inner)
		})
		for i := s.first; i >= 0; i = e.items[i].next {
			e.sample(e.items[i], 0)
		}
		e.b = protoappend.Close(e.b, at)
		if f := s.family; e.at-f.told >= metadataEvery {
			f.told = e.at
			e.about = append(e.about, f)
		}
	}
	for _, f := range e.about {
		var at int
		e.b, at = protoappend.Open(e.b, oneMetadata)
		e.b = protoappend.Varint(e.b, metaKind, kindOf(f.kind))
		e.b = protoappend.String(e.b, metaFamily, f.name)
		e.b = protoappend.String(e.b, metaHelp1, f.help)
		e.b = protoappend.String(e.b, metaUnit1, f.unit)
		e.b = protoappend.Close(e.b, at)
		f.told = 0 // until the receiver has it
	}
}

// told marks the families that the last request described.
func (e *encoder) told() {
	for _, f := range e.about {
		f.told = e.at
	}
}

func (e *encoder) sample(i item, start int64) {
	var at int
	e.b, at = protoappend.Open(e.b, samplesIn)
	e.b = protoappend.Double(e.b, value, i.value)
	e.b = protoappend.Varint(e.b, timestamp, uint64(i.at))
	if start != 0 && start < i.at {
		e.b = protoappend.Varint(e.b, startTimestamp, uint64(start))
	}
	e.b = protoappend.Close(e.b, at)
}

// symbol returns the place of a text in the request's table.
func (e *encoder) symbol(s string) uint32 {
	ref, ok := e.symbols[s]
	if !ok {
		ref = uint32(len(e.texts))
		e.texts = append(e.texts, s)
		e.symbols[s] = ref
	}
	return ref
}

// two puts the table behind the series: the order of fields in a message is free.
func (e *encoder) two() {
	if e.symbols == nil {
		e.symbols = map[string]uint32{}
	}
	clear(e.symbols)
	clear(e.texts)
	e.texts = e.texts[:0]
	e.symbol("") // by the specification the first one
	for _, s := range e.order {
		var at, inner int
		e.refs = e.refs[:0]
		s.each(func(name, text string) { e.refs = append(e.refs, e.symbol(name), e.symbol(text)) })
		e.b, at = protoappend.Open(e.b, twoSeries)
		e.b, inner = protoappend.Open(e.b, twoRefs)
		for _, r := range e.refs {
			e.b = protowire.AppendVarint(e.b, uint64(r))
		}
		e.b = protoappend.Close(e.b, inner)
		for i := s.first; i >= 0; i = e.items[i].next {
			e.sample(e.items[i], s.start)
		}
		f := s.family
		e.b, inner = protoappend.Open(e.b, twoMetadata)
		e.b = protoappend.Varint(e.b, metaKind, kindOf(f.kind))
		e.b = protoappend.Varint(e.b, metaHelp2, uint64(e.symbol(f.help)))
		e.b = protoappend.Varint(e.b, metaUnit2, uint64(e.symbol(f.unit)))
		e.b = protoappend.Close(e.b, inner)
		e.b = protoappend.Close(e.b, at)
	}
	for _, s := range e.texts {
		e.b = protoappend.String(e.b, twoSymbols, s)
	}
}

// kindOf is the type of both versions' metadata.
func kindOf(k series.Kind) uint64 {
	switch k {
	case series.Counter:
		return 1
	case series.Gauge:
		return 2
	case series.Histogram:
		return 3
	case series.Summary:
		return 5
	case series.Info:
		return 6
	}
	return 0
}
