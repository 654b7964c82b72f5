package wire

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
)

const (
	maxTargets      = 8   // cimeter, node_exporter, cAdvisor, and room for more
	maxAddressBytes = 300 // a DNS name has 253
)

// Scrape says where the exporters on an agent's machine are scraped.
type Scrape struct {
	Runner  string   `json:"runner,omitempty"` // that runs there, as its operator calls it
	Targets []Target `json:"targets"`
}

// Target is one exporter.
type Target struct {
	Job     string `json:"job"`              // cimeter, node_exporter, cadvisor
	Address string `json:"address"`          // HOST:PORT; without HOST it is where the heartbeat comes from
	Scheme  string `json:"scheme,omitempty"` // https; http where nothing is said
}

// From returns s as it is seen by who hears it from that host ("" when it is
// heard in the same process): targets without a host get it, and what can be
// reached on the agent's own machine only is left out unless it is this one.
// A nil s stays nil.
func (s *Scrape) From(host string) *Scrape {
	if s == nil {
		return nil
	}
	seen := *s
	seen.Targets = make([]Target, 0, len(s.Targets))
	for _, t := range s.Targets {
		h, port, _ := SplitTarget(t.Address)
		if h == "" {
			h = host
		}
		if loopback(h) && host != "" && !loopback(host) {
			continue
		}
		t.Address = JoinTarget(h, port)
		seen.Targets = append(seen.Targets, t)
	}
	return &seen
}

func loopback(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

func (s *Scrape) check() error {
	if s == nil {
		return nil
	}
	if len(s.Runner) > maxNameBytes || len(s.Targets) > maxTargets {
		return fmt.Errorf("scrape: want a runner of at most %d bytes and at most %d targets: %w", maxNameBytes, maxTargets, cimeter.ErrInvalid)
	}
	for i, t := range s.Targets {
		if !jobName(t.Job) || !ValidTarget(t.Address) || t.Scheme != "" && t.Scheme != "http" && t.Scheme != "https" {
			return fmt.Errorf("scrape: targets[%d]: want a job of at most 32 lower-case letters, digits and underscores, HOST:PORT, and http or https: %w", i, cimeter.ErrInvalid)
		}
	}
	return nil
}

func jobName(s string) bool {
	return s != "" && len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_") == ""
}

// ValidTarget reports whether s is HOST:PORT or :PORT as Prometheus takes it: a
// name or an IP address and a port that is not 0.
func ValidTarget(s string) bool {
	_, _, ok := SplitTarget(s)
	return ok && len(s) <= maxAddressBytes
}

// SplitTarget splits HOST:PORT, [IPv6]:PORT or :PORT; ok is false for all else.
func SplitTarget(s string) (host, port string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", "", false
	}
	host, port = s[:i], s[i+1:]
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
		return "", "", false
	}
	if inner, bracket := strings.CutPrefix(host, "["); bracket {
		host, bracket = strings.CutSuffix(inner, "]")
		a, err := netip.ParseAddr(host)
		return host, port, bracket && err == nil && a.Is6() && a.Zone() == ""
	}
	return host, port, !strings.ContainsFunc(host, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_')
	})
}

// JoinTarget is the inverse of SplitTarget.
func JoinTarget(host, port string) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + port
}
