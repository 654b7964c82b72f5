// Package discover stands in for hashicorp/go-discover, which asks a dozen
// clouds for the addresses of other Consuls and is two thirds of what a Consul
// takes to build. That of the tests is alone.
package discover

import (
	"fmt"
	"log"
)

// Provider finds addresses.
type Provider interface {
	Addrs(args map[string]string, l *log.Logger) ([]string, error)
	Help() string
}

// Providers are none.
var Providers = map[string]Provider{}

// Discover finds nothing.
type Discover struct{}

// Option is not looked at.
type Option func(*Discover) error

// New returns what finds nothing.
func New(...Option) (*Discover, error) { return &Discover{}, nil }

// WithUserAgent does nothing.
func WithUserAgent(string) Option { return nil }

// WithProviders does nothing.
func WithProviders(map[string]Provider) Option { return nil }

// Names are none.
func (*Discover) Names() []string { return nil }

// Addrs finds nothing.
func (*Discover) Addrs(string, *log.Logger) ([]string, error) {
	return nil, fmt.Errorf("no provider is built in")
}
