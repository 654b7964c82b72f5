package terminal

import (
	"fmt"
	"time"
)

// source is how who is asked answers.
type source struct {
	heard   time.Time // when it last answered; zero: never yet
	failure string    // of the last reading; "" when it succeeded
}

// header says that nothing new is to be had, and since when, before all that a
// narrow screen may cut; "" when there is.
func (s source) header(name, address string, now time.Time) string {
	switch {
	case s.failure != "" && s.heard.IsZero():
		return name + "  " + address + "  " + s.failure
	case s.failure != "":
		return fmt.Sprintf("%s  server away %s, showing last state  %s: %s", name, age(now.Sub(s.heard)), address, s.failure)
	case s.heard.IsZero():
		return name + "  " + address + "  reading"
	}
	return ""
}
