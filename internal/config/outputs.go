package config

import (
	"net"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Outputs are the systems that metrics and records are sent to. An output is
// chosen by its address.
type Outputs struct {
	StatsD      StatsD      `yaml:"statsd" doc:"Metrics to a StatsD server, over UDP."`
	DogStatsD   DogStatsD   `yaml:"dogstatsd" doc:"Metrics to a Datadog agent, or another one that takes tags."`
	OTLP        OTLP        `yaml:"otlp" doc:"Metrics, and builds as traces, to an OpenTelemetry collector or another receiver of OTLP over HTTP."`
	RemoteWrite RemoteWrite `yaml:"remote_write" doc:"Samples to a Prometheus, VictoriaMetrics or another receiver of remote write."`
}

// StatsD says how metrics go to a plain StatsD server.
type StatsD struct {
	Address     string        `yaml:"address" check:"receiver" doc:"HOST:PORT of the server. Without one nothing is sent."`
	Interval    time.Duration `yaml:"interval" min:"1s" max:"10m" doc:"Time between two flushes. The server's own should not be shorter."`
	Name        string        `yaml:"name" check:"statsdname" doc:"Template of a metric's name: ${name} is its name, ${LABEL} the value of a label, ${labels} the labels that stand nowhere else in it, as label.value, and ${values} only their values."`
	MaxPacket   Bytes         `yaml:"max_packet" min:"256" max:"65507" doc:"Most bytes of one datagram: 1432 for Ethernet, 8932 for jumbo frames, 512 over the Internet."`
	Histograms  string        `yaml:"histograms" oneof:"timers counters" doc:"How histograms are told. timers: those in seconds as timers, the others as counters; counters: all as counters of their buckets, count and sum."`
	WholeNumber bool          `yaml:"whole_numbers" doc:"Tell counters in whole units; what is left over is told later. For servers that cut fractions off, such as Telegraf."`
	EndedGauges string        `yaml:"ended_gauges" oneof:"zero keep" doc:"What becomes of a gauge that is no more, such as the memory of a stage that ended. zero: 0 is sent once; keep: the server shows the last value for as long as it likes."`
}

// DogStatsD says how metrics go to a Datadog agent.
type DogStatsD struct {
	Address      string        `yaml:"address" check:"dogstatsd" doc:"HOST:PORT or udp://HOST:PORT, unix:///PATH (datagrams) or unixstream:///PATH. Without one nothing is sent."`
	Interval     time.Duration `yaml:"interval" min:"1s" max:"10m" doc:"Time between two flushes; the agent's own is 10 s."`
	Prefix       string        `yaml:"prefix" check:"metricprefix" doc:"Text before each name."`
	Tags         []string      `yaml:"tags" check:"tag" max:"64" doc:"Tags of every metric, such as env:ci. A label of the same name wins."`
	MaxPacket    Bytes         `yaml:"max_packet" auto:"true" min:"256" max:"65507" doc:"Most bytes of one datagram. auto: 1432 over UDP, 8192 over unix sockets."`
	ContainerID  string        `yaml:"container_id" check:"origin" doc:"Container that the metrics come from, for the agent to tag them: an id, ci-ID, or in-INODE of its cgroup. Agents from 7.35 know it; others must not be sent it."`
	ExternalData string        `yaml:"external_data" check:"origin" doc:"What the Datadog admission controller gave as DD_EXTERNAL_ENV. For agents from 7.57."`
	Cardinality  string        `yaml:"cardinality" oneof:"default none low orchestrator high" doc:"How many tags the agent adds of itself. default: as it is set up; anything else wants an agent from 7.64."`
}

func defaultOutputs() Outputs {
	return Outputs{
		StatsD: StatsD{
			Interval: 10 * time.Second, Name: "${name}.${labels}", MaxPacket: 1432,
			Histograms: "timers", EndedGauges: "zero",
		},
		DogStatsD:   DogStatsD{Interval: 10 * time.Second, Cardinality: "default"},
		OTLP:        defaultOTLP(),
		RemoteWrite: defaultRemoteWrite(),
	}
}

// wantedOutput is wanted for the checks of outputs.
func wantedOutput(check string) string {
	switch check {
	case "receiver":
		return "HOST:PORT, such as statsd.example.com:8125"
	case "dogstatsd":
		return "HOST:PORT, udp://HOST:PORT, unix:///PATH or unixstream:///PATH"
	case "statsdname":
		return "printable ASCII without spaces and :|@#, with ${name} in it"
	case "metricprefix":
		return "at most 100 letters, digits, dots and underscores, of which the first is a letter"
	case "tag":
		return "NAME or NAME:VALUE without commas, bars and line breaks, at most 200 bytes"
	case "origin":
		return "at most 2048 printable ASCII characters without a bar"
	}
	return ""
}

var (
	statsdName   = lazily(`^([A-Za-z0-9_.-]|\$\{[A-Za-z_][A-Za-z0-9_]*\})*$`)
	metricPrefix = lazily(`^([A-Za-z][A-Za-z0-9_.]{0,99})?$`)
	oneTag       = lazily(`^\pL[^,|\x00-\x1f\x7f]{0,199}$`)
	origin       = lazily(`^[!-{}~]*$`)
)

// outputText reports whether s passes a check of outputs. An unknown check
// passes all.
func outputText(check, s string) bool {
	switch check {
	case "receiver":
		return s == "" || hostAndPort(s)
	case "dogstatsd":
		for _, scheme := range []string{"unix://", "unixgram://", "unixstream://"} {
			if p, ok := strings.CutPrefix(s, scheme); ok {
				return strings.HasPrefix(p, "/") && !strings.Contains(p, "\x00")
			}
		}
		return s == "" || hostAndPort(strings.TrimPrefix(s, "udp://"))
	case "statsdname":
		return statsdName().MatchString(s) && strings.Contains(s, "${name}")
	case "metricprefix":
		return metricPrefix().MatchString(s)
	case "tag":
		return len(s) <= 200 && utf8.ValidString(s) && oneTag().MatchString(s)
	case "origin":
		return len(s) <= 2048 && origin().MatchString(s)
	}
	return true
}

// hostAndPort reports whether s names a host and a port that something can
// listen at.
func hostAndPort(s string) bool {
	host, port, err := net.SplitHostPort(s)
	n, perr := strconv.ParseUint(port, 10, 16)
	return err == nil && perr == nil && n > 0 && host != "" && !strings.ContainsAny(host, " /@")
}
