package otlp

import (
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/cimeter/cimeter/internal/protoappend"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

// Field numbers of opentelemetry/proto: collector/metrics/v1, metrics/v1,
// resource/v1 and common/v1. Tests read what is made of them with the types that
// the OpenTelemetry project generates.
const (
	requestResource = 1 // resource_metrics, resource_spans

	resourceResource = 1
	resourceScope    = 2 // scope_metrics, scope_spans
	resourceSchema   = 3

	scopeScope   = 1
	scopeMetrics = 2
	scopeSpans   = 2

	metricName        = 1
	metricDescription = 2
	metricUnit        = 3
	metricGauge       = 5
	metricSum         = 7
	metricHistogram   = 9
	metricSummary     = 11

	dataPoints    = 1 // of gauge, sum, histogram and summary
	temporality   = 2
	sumMonotonic  = 3
	cumulative    = 2 // AGGREGATION_TEMPORALITY_CUMULATIVE
	pointStart    = 2
	pointTime     = 3
	numberDouble  = 4
	numberAttr    = 7
	manyCount     = 4 // of histogram and summary points
	manySum       = 5
	histoCounts   = 6
	histoBounds   = 7
	histoExemplar = 8
	histoAttr     = 9
	summaryValues = 6
	summaryAttr   = 7
	exemplarTime  = 2
	exemplarValue = 3
	exemplarSpan  = 4
	exemplarTrace = 5
	exemplarAttr  = 7 // filtered_attributes
	quantileRank  = 1
	quantileValue = 2

	keyKey      = 1
	keyValue    = 2
	valueString = 1
	valueInt    = 3
	valueDouble = 4
)

// schemaURL is the version of the semantic conventions that names are from.
const schemaURL = "https://opentelemetry.io/schemas/1.43.0"

// encoder makes requests of at most maxPoints points.
type encoder struct {
	o      *Output
	nano   uint64
	points int // in the request that is being made

	b               []byte
	resource, scope int // where they were opened
	metric, data    int // the same, of the metric that is being made
	inMetric        bool
}

func (o *Output) encoder(at time.Time) *encoder { return &encoder{o: o, nano: nano(at)} }

// nano returns nanoseconds since 1970; 0, which means that it is not known, for
// no time and those before.
func nano(t time.Time) uint64 {
	if t.IsZero() || t.Unix() < 0 {
		return 0
	}
	return uint64(t.UnixNano())
}

func appendResource(b []byte, attributes []series.Label) []byte {
	b, at := protoappend.Open(b, resourceResource)
	for _, l := range attributes {
		b = appendAttribute(b, 1, l.Name, l.Value)
	}
	return protoappend.Close(b, at)
}

func appendScope(b []byte, version string) []byte {
	b, at := protoappend.Open(b, scopeScope)
	b = protoappend.String(b, 1, "github.com/cimeter/cimeter")
	if version != "" {
		b = protoappend.String(b, 2, version)
	}
	return protoappend.Close(b, at)
}

func appendAttribute(b []byte, num protowire.Number, key, value string) []byte {
	b, at := protoappend.Open(b, num)
	b = protoappend.String(b, keyKey, key)
	b, inner := protoappend.Open(b, keyValue)
	b = protoappend.String(b, valueString, value)
	b = protoappend.Close(b, inner)
	return protoappend.Close(b, at)
}

// families appends the points of all groups and calls flush whenever a request
// is full. The caller flushes the last one.
func (e *encoder) families(groups []group, flush func() error) error {
	for i := range groups {
		g := &groups[i]
		for _, part := range g.parts {
			for j := range part.family.Points {
				p := &part.family.Points[j]
				if part.is(p) != part.rule {
					continue
				}
				if e.points == maxPoints {
					if err := flush(); err != nil {
						return err
					}
				}
				e.open(g)
				e.point(part, p)
				e.points++
			}
		}
		e.endMetric()
	}
	return nil
}

// open begins what a point of g stands in, unless it is open.
func (e *encoder) open(g *group) {
	if e.points == 0 {
		e.b = e.o.buf[:0]
		e.b, e.resource = protoappend.Open(e.b, requestResource)
		e.b = append(e.b, e.o.head...)
		e.b = protoappend.String(e.b, resourceSchema, schemaURL)
		e.b, e.scope = protoappend.Open(e.b, resourceScope)
		e.b = append(e.b, e.o.scope...)
	}
	if e.inMetric {
		return
	}
	e.inMetric = true
	e.b, e.metric = protoappend.Open(e.b, scopeMetrics)
	e.b = protoappend.String(e.b, metricName, g.name)
	if g.help != "" {
		e.b = protoappend.String(e.b, metricDescription, g.help)
	}
	if g.unit != "" {
		e.b = protoappend.String(e.b, metricUnit, g.unit)
	}
	field := protowire.Number(metricGauge)
	switch {
	case g.kind == series.Histogram:
		field = metricHistogram
	case g.kind == series.Summary:
		field = metricSummary
	case g.kind == series.Counter || g.upDown:
		field = metricSum
	}
	e.b, e.data = protoappend.Open(e.b, field)
	if field == metricSum || field == metricHistogram {
		e.b = protoappend.Varint(e.b, temporality, cumulative)
	}
	if g.kind == series.Counter {
		e.b = protoappend.Varint(e.b, sumMonotonic, 1)
	}
}

func (e *encoder) endMetric() {
	if e.inMetric {
		e.b = protoappend.Close(e.b, e.data)
		e.b = protoappend.Close(e.b, e.metric)
		e.inMetric = false
	}
}

// finish returns the request; the next point begins a new one.
func (e *encoder) finish() []byte {
	e.endMetric()
	e.b = protoappend.Close(e.b, e.scope)
	e.b = protoappend.Close(e.b, e.resource)
	e.points = 0
	return e.b
}

func (e *encoder) point(part part, p *series.Point) {
	b, at := protoappend.Open(e.b, dataPoints)
	if start := nano(p.Start); start != 0 && start <= e.nano && part.sums() {
		b = protoappend.Fixed64(b, pointStart, start)
	}
	b = protoappend.Fixed64(b, pointTime, e.nano)
	attributes := protowire.Number(numberAttr)
	switch {
	case part.family.Kind == series.Histogram:
		attributes = histoAttr
		b = appendHistogram(b, p.Buckets)
		if x := p.Buckets.Exemplar; x != nil && e.o.traced && x.Label.Name == tally.BuildLabel {
			b = appendExemplar(b, x)
		}
	case part.family.Kind == series.Summary:
		attributes = summaryAttr
		b = appendSummary(b, p.Quantiles)
	default:
		b = protoappend.Double(b, numberDouble, p.Value)
	}
	b = e.o.names.attributes(b, attributes, part, p)
	e.b = protoappend.Close(b, at)
}

func appendHistogram(b []byte, h *series.Buckets) []byte {
	b = protoappend.Fixed64(b, manyCount, h.Count())
	b = protoappend.Double(b, manySum, h.Sum)
	b, at := protoappend.Open(b, histoCounts)
	for _, n := range h.Counts {
		b = protowire.AppendFixed64(b, n)
	}
	b = protoappend.Close(b, at)
	b, at = protoappend.Open(b, histoBounds)
	for _, f := range h.Bounds {
		b = protowire.AppendFixed64(b, math.Float64bits(f))
	}
	return protoappend.Close(b, at)
}

// appendExemplar appends an observation and where it leads: the span of the run of
// the build's task. A stage has no other: which of its attempts was observed is
// not known.
func appendExemplar(b []byte, x *series.Exemplar) []byte {
	d := newIDs(x.Label.Value)
	b, at := protoappend.Open(b, histoExemplar)
	b = protoappend.Fixed64(b, exemplarTime, nano(x.At))
	b = protoappend.Double(b, exemplarValue, x.Value)
	b = protoappend.Bytes(b, exemplarSpan, d.span(taskSpan))
	b = protoappend.Bytes(b, exemplarTrace, d.trace[:])
	b = appendAttribute(b, exemplarAttr, "cimeter.build", x.Label.Value)
	return protoappend.Close(b, at)
}

func appendSummary(b []byte, q *series.Quantile) []byte {
	b = protoappend.Fixed64(b, manyCount, q.Count)
	b = protoappend.Double(b, manySum, q.Sum)
	for i, rank := range q.Ranks {
		var at int
		b, at = protoappend.Open(b, summaryValues)
		b = protoappend.Double(b, quantileRank, rank)
		b = protoappend.Double(b, quantileValue, q.Values[i])
		b = protoappend.Close(b, at)
	}
	return b
}
