package ci

import "strconv"

// maxQuoted bounds a foreign value inside a sentence for the operator: long
// enough for any honest name, short enough for one line of a log.
const maxQuoted = 80

// Quote returns s quoted and bounded to 80 of its bytes, safe to print in one
// line whatever s holds.
func Quote(s string) string {
	if len(s) > maxQuoted {
		return strconv.Quote(s[:maxQuoted]) + "..."
	}
	return strconv.Quote(s)
}
