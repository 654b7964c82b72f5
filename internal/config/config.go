// Package config turns one YAML file, flags and the environment into a checked
// [Config].
//
// It owns the names, defaults and accepted ranges of every setting, and the
// wording of what is wrong with one. It knows no component: cmd/cimeter turns a
// Config into the options of each. It never logs and never contacts anything;
// the files that it reads are the configuration, the files of secrets that this
// names, and their modes. Start with [Load]. Everything is safe for use by one
// goroutine; a Config is not changed after it is loaded.
package config

import (
	"fmt"
	"os"
	"time"
)

// Config is every setting of cimeter. Its tags are the source of docs/config.md:
// yaml (name), doc, min and max (accepted range), oneof, check (kind of value).
type Config struct {
	Listen        string     `yaml:"listen" check:"hostport" doc:"Address that the metrics, the API and the health pages are served at."`
	Data          string     `yaml:"data" check:"path" doc:"Directory of the records. Made with mode 0700 where it does not exist."`
	WebConfigFile string     `yaml:"web_config_file" check:"webconfig" doc:"TLS and basic auth of the listener, in the form of the Prometheus exporter toolkit. Must not be readable by everybody when it holds users or names a key."`
	Machine       string     `yaml:"machine" check:"label" doc:"Name of this machine in labels and records. Default: the host's name."`
	Pool          string     `yaml:"pool" check:"label" doc:"Name of the pool that this machine belongs to, where machines come and go. It is shown beside the machine."`
	Log           Log        `yaml:"log" doc:"What cimeter says on standard error."`
	Agent         Agent      `yaml:"agent" doc:"Metering of the builds on this machine."`
	Metrics       Metrics    `yaml:"metrics" doc:"Bounds of what is exported."`
	Records       Records    `yaml:"records" doc:"Bounds of the records kept on this machine. The oldest go first."`
	Server        Server     `yaml:"server" doc:"The server that an agent sends its records to."`
	Access        Access     `yaml:"access" doc:"Who may use a server."`
	Store         Store      `yaml:"store" doc:"Where a server keeps its builds."`
	Discover      Discover   `yaml:"discover" doc:"How Prometheus finds machines."`
	Outputs       Outputs    `yaml:"outputs" doc:"Where metrics and records are sent to, besides what is served: see docs/outputs.md."`
	Debug         Debug      `yaml:"debug" doc:"Profiles and variables of cimeter itself."`
	CIServers     []CIServer `yaml:"ci_servers" max:"64" doc:"CI servers whose queue, workers and builds a server knows: see below and docs/queue.md."`
	Sources       []Source   `yaml:"sources" max:"64" doc:"Programs whose metrics are read and given to the outputs: see below."`
}

// Log says what is logged and how.
type Log struct {
	Level  string `yaml:"level" oneof:"debug info warn error" doc:"Least severe level that is logged."`
	Format string `yaml:"format" oneof:"logfmt json" doc:"Form of a log line."`
}

// Agent holds the settings of the metering role.
type Agent struct {
	Interval      time.Duration `yaml:"interval" min:"100ms" max:"5m" doc:"Time between two samples of a running container. Totals do not depend on it; maxima and deviations do."`
	FullEvery     int           `yaml:"full_every" min:"1" max:"1000" doc:"Every how many rounds the dear readings, such as memory.stat, are taken too."`
	Grace         time.Duration `yaml:"grace" min:"0s" max:"10m" doc:"How long a build whose containers are gone stays open for more of them."`
	Quiet         time.Duration `yaml:"quiet" min:"0s" max:"24h" doc:"How long a build whose containers exist, but do not run, stays open: between two steps a runner may pull a large image."`
	Docker        Docker        `yaml:"docker" doc:"The Docker Engine that CI runners use."`
	CRI           []string      `yaml:"cri" check:"socket" max:"8" doc:"Sockets of the Kubernetes runtimes (containerd, CRI-O) to follow, such as unix:///run/containerd/containerd.sock."`
	CRIEvents     string        `yaml:"cri_events" oneof:"auto off" doc:"Whether a Kubernetes runtime that streams what happens to containers is followed by that (auto), or asked when the kernel tells of a new or empty cgroup and for a list every ten seconds, as one that does not (off). See docs/kubernetes.md."`
	Podman        []string      `yaml:"podman" check:"docker" max:"32" doc:"Addresses of the API services of Podman to follow, such as unix:///run/podman/podman.sock."`
	Kubernetes    Kubernetes    `yaml:"kubernetes" doc:"What an API server of Kubernetes is asked for, which tells what the runtime of a node does not."`
	Processes     string        `yaml:"processes" oneof:"auto events scan off" doc:"How builds are found that run in no container: by the kernel's process events (events; agent does not start without the right to them), by looking at all processes once in an interval (scan), by events where they may be had and looking otherwise (auto), or not at all (off). See docs/shell-builds.md."`
	CgroupRoot    string        `yaml:"cgroup_root" check:"path" doc:"Mount point of the cgroup file systems; /host/sys/fs/cgroup in a container."`
	ProcRoot      string        `yaml:"proc_root" check:"path" doc:"Mount point of procfs of the host."`
	SysRoot       string        `yaml:"sys_root" check:"path" doc:"Mount point of sysfs of the host."`
	GitLabRunners []string      `yaml:"gitlab_runners" check:"url" max:"32" doc:"Addresses of the job lists of GitLab Runners on this machine, such as http://127.0.0.1:9252/debug/jobs/list: the best source of the stage that a container is in."`
	Rules         []Rule        `yaml:"rules" max:"200" doc:"How containers of other CI systems tell their build. The first rule that matches wins; the systems that cimeter knows need none."`
	Variables     []string      `yaml:"variables" check:"variable" max:"64" doc:"Environment variables of containers that may be read besides the built-in ones. No other variable is ever looked at."`
	ContainerInfo bool          `yaml:"container_info" doc:"Export cimeter_container_info, which joins series of cAdvisor and the kubelet to builds. Its number of series grows with the number of running containers."`
	WakeBlockIO   bool          `yaml:"wake_block_io" doc:"On cgroup v1, make the kernel count block IO for containers that have no IO limits, by writing one throttle rule that limits nothing into their parent."`
	Trace         bool          `yaml:"trace" doc:"Keep the shape over time of each build in its record (at most 10 KiB)."`
	Socket        JobSocket     `yaml:"socket" doc:"The socket on which jobs ask for their own account."`
	MemoryLimit   Bytes         `yaml:"memory_limit" auto:"true" min:"16MiB" max:"4GiB" doc:"Soft limit of cimeter's own memory. auto: nine tenths of what its own cgroup may use."`
}

// Docker says how the Docker Engine is reached.
type Docker struct {
	Enabled bool     `yaml:"enabled" doc:"Follow the Docker Engine."`
	Host    string   `yaml:"host" check:"docker" doc:"Address of the Docker Engine: unix:///path or tcp://HOST:PORT. Default: unix:///var/run/docker.sock, but no Docker Engine where agent.cri or agent.podman names an engine."`
	Others  []string `yaml:"others" check:"docker" max:"8" doc:"Addresses of further Docker Engines of this machine."`
}

// Kubernetes says what an API server is asked for, and how it is reached.
type Kubernetes struct {
	RunnerJobs bool   `yaml:"runner_jobs" doc:"Ask which jobs the runners of Actions Runner Controller have: their pods do not tell. Needs the right to watch ephemeralrunners.actions.github.com. See docs/identities.md."`
	URL        string `yaml:"url" check:"address" doc:"Address of the API server. Default: that of the cluster whose pod cimeter runs in, with the pod's service account."`
	TokenFile  string `yaml:"token_file" check:"optionalpath" doc:"File of the token that it is asked with, where url is given. It is read before each request."`
	CAFile     string `yaml:"ca_file" check:"optionalpath" doc:"PEM file of the authorities that may sign its certificate, where url is given. Default: the system's."`
}

// Rule maps the metadata of a container to a build.
type Rule struct {
	Name  string            `yaml:"name" check:"label" doc:"What the rule is called in messages."`
	Match Match             `yaml:"match" doc:"What a container must have. Everything that is given must match."`
	Set   map[string]string `yaml:"set" doc:"Fields of the build: a constant, or a template in which ${group} stands for a named group of a pattern and $$ for a dollar sign. A group that is named like a field gives that field where nothing is set."`
}

// Match holds the patterns of a rule. A Pattern that is not given matches all.
type Match struct {
	Labels  map[string]Pattern `yaml:"labels" doc:"Label to pattern. A label that the container does not have does not match."`
	Env     map[string]Pattern `yaml:"env" doc:"Variable to pattern. The variable joins the list of those that may be read."`
	Name    Pattern            `yaml:"name" doc:"Pattern of the container's name."`
	Image   Pattern            `yaml:"image" doc:"Pattern of the image as it was asked for."`
	Network Pattern            `yaml:"network" doc:"Pattern of one of the container's networks."`
}

// setFields are the fields that a rule may set.
var setFields = [...]string{
	"ci", "server", "project", "number", "name", "attempt", "pipeline", "pipeline_stage", "ref", "sha", "event", "url",
	"runner", "stage", "role", "group",
}

// Metrics bounds what is exported.
type Metrics struct {
	SeriesBudget int `yaml:"series_budget" min:"1000" max:"1000000" doc:"Most series that builds may make. What is over it is added up under project=\"#other#\" and counted."`
}

// Records bounds the directory of records.
type Records struct {
	MaxBytes   Bytes `yaml:"max_bytes" min:"1MiB" max:"1TiB" doc:"Most bytes that all records together take."`
	MaxRecords int   `yaml:"max_records" min:"10" max:"10000000" doc:"Most records that are kept."`
}

// Server says where an agent sends its records to, and as whom.
type Server struct {
	URL           string        `yaml:"url" check:"address" doc:"Address of the server, such as https://cimeter.example.com. Without one nothing is sent."`
	TokenFile     string        `yaml:"token_file" check:"optionalpath" doc:"File of the token that the server knows this agent by; $CIMETER_SERVER_TOKEN wins over it. It is read before each request. Must not be readable by everybody."`
	CAFile        string        `yaml:"ca_file" check:"optionalpath" doc:"PEM file of the authorities that may sign the server's certificate. Default: the system's."`
	Heartbeat     time.Duration `yaml:"heartbeat" min:"1s" max:"10m" doc:"Time between two heartbeats, which tell the server what runs now."`
	SpoolMaxBytes Bytes         `yaml:"spool_max_bytes" min:"1MiB" max:"1TiB" doc:"Most bytes of the records that wait for the server on this machine. The oldest go first."`
}

// Access says who may use a server.
type Access struct {
	TokensFile string `yaml:"tokens_file" check:"optionalpath" doc:"File of the tokens, one a line: read, push or cancel, a name, and the token's SHA-256. Must not be readable by everybody."`
	Public     bool   `yaml:"public" doc:"Let everybody read. Without it only those with a token may, unless the listener is on a loopback address."`
}

// Store says where a server keeps its builds.
type Store struct {
	DatabaseFile string        `yaml:"database_file" check:"optionalpath" doc:"File of the URL of a PostgreSQL, postgres://USER:PASSWORD@HOST/DATABASE; --database and $CIMETER_DATABASE win over it. Default: an SQLite file in the directory of data. Must not be readable by everybody."`
	KeepBuilds   time.Duration `yaml:"keep_builds" min:"1h" max:"87600h" doc:"How long builds are kept."`
	KeepTotals   time.Duration `yaml:"keep_totals" min:"24h" max:"262800h" doc:"How long the totals of days are kept."`
	MaxBytes     Bytes         `yaml:"max_bytes" auto:"true" min:"16MiB" max:"16TiB" doc:"Most bytes of the store. The oldest builds go first. auto: no bound but their age."`
}

// Default returns the settings that hold where nothing else is said. Machine is
// empty: Load fills in the host's name.
func Default() Config {
	return Config{
		Listen: ":9808",
		Data:   "/var/lib/cimeter",
		Log:    Log{Level: "info", Format: "logfmt"},
		Agent: Agent{
			Interval:    time.Second,
			FullEvery:   10,
			Grace:       10 * time.Second,
			Quiet:       10 * time.Minute,
			Docker:      Docker{Enabled: true},
			CRIEvents:   "auto",
			Processes:   "auto",
			CgroupRoot:  "/sys/fs/cgroup",
			ProcRoot:    "/proc",
			SysRoot:     "/sys",
			WakeBlockIO: true,
			Trace:       true,
			Socket:      defaultJobSocket(),
		},
		Metrics:  Metrics{SeriesBudget: 20000},
		Records:  Records{MaxBytes: 256 << 20, MaxRecords: 10000},
		Server:   Server{Heartbeat: 5 * time.Second, SpoolMaxBytes: 256 << 20},
		Store:    Store{KeepBuilds: 400 * 24 * time.Hour, KeepTotals: 5 * 365 * 24 * time.Hour},
		Discover: defaultDiscover(),
		Outputs:  defaultOutputs(),
	}
}

// Override is a setting that a flag or a variable gives. It wins over the file.
type Override struct {
	Path   string // as in the file: agent.docker.host
	Value  string // as it would stand in the file
	Source string // what to name in a problem: --docker
}

// maxFileBytes bounds a configuration file: a thousand rules fit; a mistaken
// path to something huge does not.
const maxFileBytes = 1 << 20

// Load reads the file at path ("" is no file) over the defaults, lays the
// overrides over that, and checks the result. Everything that is wrong is
// reported at once as [Problems]; any other error means that the file could not
// be read.
func Load(path string, overrides ...Override) (Config, error) {
	var b []byte
	if path != "" {
		st, err := os.Stat(path)
		if err != nil {
			return Config{}, fmt.Errorf("read config: %w", err)
		}
		if st.Size() > maxFileBytes {
			return Config{}, fmt.Errorf("read config: %s: %d bytes: want at most %d", path, st.Size(), maxFileBytes)
		}
		if b, err = os.ReadFile(path); err != nil {
			return Config{}, fmt.Errorf("read config: %w", err)
		}
	}
	c, err := Parse(path, b, overrides...)
	if err == nil && c.Machine == "" {
		if c.Machine, err = os.Hostname(); err != nil {
			return Config{}, fmt.Errorf("name this machine: %w", err)
		}
	}
	return c, err
}

// Parse is Load for the bytes of a file; name stands before the line number in
// problems. Machine stays empty when nothing sets it.
func Parse(name string, b []byte, overrides ...Override) (Config, error) {
	c := Default()
	d := decoder{file: name, sources: map[string]source{}}
	d.document(b, &c)
	for _, o := range overrides {
		d.override(o, &c)
	}
	d.check(&c)
	if len(d.problems) > 0 {
		return Config{}, d.problems.sorted()
	}
	return c, nil
}
