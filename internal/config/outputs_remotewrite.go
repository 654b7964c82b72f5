package config

import "time"

// RemoteWrite says how samples go to a receiver of Prometheus' remote write.
type RemoteWrite struct {
	URL       string            `yaml:"url" check:"address" doc:"Address of the receiver, path and all, such as http://prometheus:9090/api/v1/write. Without one nothing is sent."`
	Interval  time.Duration     `yaml:"interval" min:"1s" max:"10m" doc:"Time between two samples of each series."`
	Protocol  string            `yaml:"protocol" oneof:"auto 1.0 2.0" doc:"Version of the protocol. auto: 2.0, and 1.0 once the receiver shows that it does not take it."`
	Labels    map[string]string `yaml:"labels" doc:"Labels of every series that has none of that name. job and instance are cimeter and the machine where nothing else is said here."`
	MaxBytes  Bytes             `yaml:"max_bytes" min:"64KiB" max:"1GiB" doc:"Most bytes of the samples that wait while the receiver is away, 16 each. The oldest go first."`
	MaxAge    time.Duration     `yaml:"max_age" min:"1m" max:"24h" doc:"How long a sample waits. A Prometheus takes none that are older than about an hour, unless it has an out-of-order window."`
	Headers   map[string]string `yaml:"headers" doc:"Headers of each request, such as X-Scope-OrgID. No place for a secret."`
	User      string            `yaml:"user" check:"label" doc:"User of basic authentication."`
	TokenFile string            `yaml:"token_file" check:"optionalpath" doc:"File of the bearer token, or of the password where user is set; $CIMETER_REMOTE_WRITE_TOKEN wins over it. It is read before each request. Must not be readable by everybody."`
	CAFile    string            `yaml:"ca_file" check:"optionalpath" doc:"PEM file of the authorities that may sign the receiver's certificate. Default: the system's."`
}

func defaultRemoteWrite() RemoteWrite {
	return RemoteWrite{Interval: 15 * time.Second, Protocol: "auto", MaxBytes: 16 << 20, MaxAge: time.Hour}
}
