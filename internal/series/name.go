package series

// MetricName returns s as a name that every system takes for a metric: what is
// no letter, digit, underscore or colon becomes an underscore, and a digit that
// is first too.
func MetricName(s string) string { return legal(s, true) }

// LabelName is MetricName without colons, as labels are named, and metrics that
// are no recording rule's.
func LabelName(s string) string { return legal(s, false) }

// legal replaces what every receiver takes in no name: [a-zA-Z_][a-zA-Z0-9_]*,
// and colons in a metric's.
func legal(s string, colon bool) string {
	ok := func(i int, c byte) bool {
		return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9' || colon && c == ':'
	}
	fine := s != ""
	for i := range len(s) {
		fine = fine && ok(i, s[i])
	}
	if fine {
		return s
	}
	b := []byte(s)
	for i := range b {
		if !ok(i, b[i]) {
			b[i] = '_'
		}
	}
	if len(b) == 0 {
		return "_"
	}
	return string(b)
}
