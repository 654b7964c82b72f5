package archtest

// layer is the kind of a package. It decides what a package may do besides
// importing what its row names.
type layer int

const (
	// domain: plain data and its arithmetic; value packages of the standard
	// library only.
	domain layer = iota
	// pure: no input or output, no clock, no goroutine, no logger. What it
	// needs is a parameter, so that a test of it is a table.
	pure
	// adapter: one outside thing; one try and an error. It imports the domain
	// and pure packages, never another adapter: what joins two of them is a role.
	adapter
	// support: a leaf that any upper layer may use; imports nothing of ours.
	support
	// role: goroutines, schedule, retry, limits, and the log.
	role
	// library: what others import; it joins the parts as the wiring does, takes
	// nothing of others, and imports no wiring.
	library
	// wiring: flags to options to roles.
	wiring
	// forTests: imported by tests only.
	forTests
)

// row says what a package may import besides the root and the standard library.
type row struct {
	layer    layer
	ours     []string // packages of ours, below internal/
	theirs   []string // modules of others
	mayLog   bool     // log/slog, for another reason than being a role
	whyTheir string   // the reason for theirs
	outside  []string // files of a pure package that are an adapter beside it
}

var sys = []string{"golang.org/x/sys"}

// layers is the table of docs/architecture.md. Arrows point down only.
var layers = map[string]row{
	"": {layer: domain},

	"deploy":                               {layer: pure},
	"internal/attrib":                      {layer: pure, ours: []string{"internal/counter", "internal/tally"}},
	"internal/catalog":                     {layer: pure},
	"internal/ci":                          {layer: pure},
	"internal/ci/act":                      {layer: pure, ours: []string{"internal/ci"}},
	"internal/ci/ask":                      {layer: pure, ours: []string{"internal/queue"}},
	"internal/ci/askhttp":                  {layer: adapter, ours: []string{"internal/ci/ask", "internal/outbound", "internal/queue"}},
	"internal/ci/drone":                    {layer: pure, ours: []string{"internal/ci", "internal/ci/ask"}},
	"internal/ci/drone/droneapi":           {layer: adapter, ours: []string{"internal/ci", "internal/ci/ask", "internal/ci/drone", "internal/queue"}},
	"internal/ci/drone/dronedb":            {layer: adapter, ours: []string{"internal/ci/drone", "internal/queue"}, theirs: []string{"github.com/go-sql-driver/mysql", "github.com/jackc/pgx", "modernc.org/sqlite"}, whyTheir: "the databases that Drone can have"},
	"internal/ci/forge":                    {layer: pure, ours: []string{"internal/ci/ask", "internal/display"}},
	"internal/ci/gitea":                    {layer: pure, ours: []string{"internal/ci"}},
	"internal/ci/gitea/giteaapi":           {layer: adapter, ours: []string{"internal/ci", "internal/ci/ask", "internal/ci/gitea", "internal/queue"}},
	"internal/ci/github":                   {layer: pure, ours: []string{"internal/ci"}},
	"internal/ci/github/githubapi":         {layer: adapter, ours: []string{"internal/ci", "internal/ci/ask", "internal/ci/github", "internal/queue"}},
	"internal/ci/argo":                     {layer: pure, ours: []string{"internal/ci"}},
	"internal/ci/buildkite":                {layer: pure, ours: []string{"internal/ci"}},
	"internal/ci/jenkins":                  {layer: pure, ours: []string{"internal/ci"}},
	"internal/ci/prow":                     {layer: pure, ours: []string{"internal/ci"}},
	"internal/ci/tekton":                   {layer: pure, ours: []string{"internal/ci"}},
	"internal/ci/jenkins/jenkinsapi":       {layer: adapter, ours: []string{"internal/ci", "internal/ci/ask", "internal/ci/jenkins", "internal/queue"}},
	"internal/ci/buildkite/buildkiteapi":   {layer: adapter, ours: []string{"internal/ci", "internal/ci/ask", "internal/ci/buildkite", "internal/queue"}},
	"internal/ci/gitlab":                   {layer: pure, ours: []string{"internal/ci", "internal/queue", "internal/section"}, outside: []string{"joblist.go"}},
	"internal/ci/rules":                    {layer: pure, ours: []string{"internal/ci"}},
	"internal/ci/woodpecker":               {layer: pure, ours: []string{"internal/ci"}},
	"internal/ci/woodpecker/woodpeckerapi": {layer: adapter, ours: []string{"internal/ci", "internal/ci/ask", "internal/ci/woodpecker", "internal/queue"}},
	"internal/counter":                     {layer: pure},
	"internal/display":                     {layer: pure},
	"internal/filter":                      {layer: pure},
	"internal/protoappend":                 {layer: pure, theirs: []string{"google.golang.org/protobuf"}, whyTheir: "the encoding of protobuf's fields"},
	"internal/refusal":                     {layer: pure},
	"internal/recordjson":                  {layer: pure},
	"internal/store":                       {layer: pure, ours: []string{"internal/filter", "internal/queue", "internal/recordjson", "internal/summary"}, theirs: []string{"github.com/klauspost/compress"}, whyTheir: "the stored form of a record"},
	"internal/queue":                       {layer: pure},
	"internal/section":                     {layer: pure},
	"internal/series":                      {layer: pure, ours: []string{"internal/catalog", "internal/tally"}},
	"internal/summary":                     {layer: pure, ours: []string{"internal/display", "internal/section"}},
	"internal/tally":                       {layer: pure, ours: []string{"internal/catalog"}},
	"internal/terminal":                    {layer: pure, ours: []string{"internal/display", "internal/queue"}},
	"internal/wire":                        {layer: pure, ours: []string{"internal/recordjson"}, theirs: []string{"github.com/klauspost/compress"}, whyTheir: "zstd"},

	"internal/discover/targets": {layer: pure, ours: []string{"internal/wire"}},

	"internal/ci/gitlab/gitlabapi": {layer: adapter, ours: []string{"internal/ci", "internal/ci/gitlab", "internal/display", "internal/outbound", "internal/queue", "internal/section"},
		theirs: []string{"gitlab.com/gitlab-org/api/client-go/v2"}, whyTheir: "GitLab's own client", mayLog: true /* it asks for a logger; it gets one that discards */},
	"internal/discover/consul":    {layer: adapter, ours: []string{"internal/display", "internal/outbound"}},
	"internal/discover/filesd":    {layer: adapter, ours: []string{"internal/discover/targets"}},
	"internal/discover/neighbour": {layer: adapter},
	"internal/discover":           {layer: role, ours: []string{"internal/catalog", "internal/discover/consul", "internal/discover/targets", "internal/tally", "internal/wire"}},

	"internal/cgroup": {layer: adapter, theirs: sys, whyTheir: "openat, statfs and pread of cgroup files"},
	"internal/client": {layer: adapter, ours: []string{"internal/display", "internal/queue", "internal/section"}},
	"internal/debug":  {layer: adapter},
	"internal/cri":    {layer: adapter, theirs: []string{"google.golang.org/protobuf"}, whyTheir: "the encoding of protobuf's fields"},
	"internal/docker": {layer: adapter,
		theirs:   []string{"github.com/moby/moby/client", "github.com/moby/moby/api", "github.com/containerd/errdefs"},
		whyTheir: "the official client of the Docker Engine"},
	"internal/httpapi": {layer: adapter, ours: []string{"internal/discover/targets", "internal/display", "internal/filter", "internal/queue", "internal/section", "internal/recordjson", "internal/store", "internal/summary", "internal/wire"}, mayLog: true /* hands http.Server its caller's logger */},
	"internal/httpapi/webconfig": {layer: adapter, mayLog: true, /* the toolkit asks for a logger; it gets one that discards */
		theirs: []string{"github.com/prometheus/exporter-toolkit"}, whyTheir: "TLS and basic auth as all exporters have them"},
	"internal/install":           {layer: adapter, ours: []string{"deploy"}},
	"internal/kubeapi":           {layer: adapter, ours: []string{"internal/ci/github", "internal/outbound"}},
	"internal/machine":           {layer: adapter},
	"internal/netns":             {layer: adapter, theirs: sys, whyTheir: "netlink"},
	"internal/output/expvar":     {layer: adapter, ours: []string{"internal/series"}},
	"internal/output/prometheus": {layer: adapter, ours: []string{"internal/catalog", "internal/series", "internal/tally"}},
	"internal/output/otlp": {layer: adapter, ours: []string{"internal/catalog", "internal/display", "internal/protoappend", "internal/refusal", "internal/series", "internal/tally"},
		theirs: []string{"google.golang.org/protobuf"}, whyTheir: "the encoding of protobuf's fields"},
	"internal/output/post":   {layer: adapter, ours: []string{"internal/display", "internal/outbound", "internal/refusal"}},
	"internal/output/statsd": {layer: adapter, ours: []string{"internal/series"}},
	"internal/output/remotewrite": {layer: adapter, ours: []string{"internal/protoappend", "internal/refusal", "internal/series"},
		theirs: []string{"google.golang.org/protobuf", "github.com/klauspost/compress"}, whyTheir: "the encoding of protobuf's fields; snappy"},
	"internal/scrape": {layer: adapter, ours: []string{"internal/series"},
		theirs: []string{"github.com/prometheus/client_model", "github.com/prometheus/common"}, whyTheir: "the parser of the text format"},
	"internal/process":        {layer: adapter, theirs: sys, whyTheir: "pidfd and capget"},
	"internal/procevents":     {layer: adapter, theirs: sys, whyTheir: "netlink and socket filters"},
	"internal/records":        {layer: adapter},
	"internal/spool":          {layer: adapter},
	"internal/sdnotify":       {layer: adapter},
	"internal/store/postgres": {layer: adapter, ours: []string{"internal/filter", "internal/queue", "internal/store"}, theirs: []string{"github.com/jackc/pgx", "golang.org/x/sys"}, whyTheir: "the protocol of PostgreSQL; whether a socket has something to read"},
	"internal/store/sqlite":   {layer: adapter, ours: []string{"internal/filter", "internal/queue", "internal/store"}, theirs: []string{"modernc.org/sqlite"}, whyTheir: "SQLite in pure Go"},
	"internal/watch":          {layer: adapter, theirs: sys, whyTheir: "inotify, pidfd and epoll"},
	"internal/web":            {layer: adapter, ours: []string{"internal/display", "internal/filter", "internal/queue", "internal/section", "internal/summary"}},

	"internal/config":   {layer: support, theirs: []string{"go.yaml.in/yaml/v3"}, whyTheir: "the decoder of the file", mayLog: true /* Secret hides itself from slog */},
	"internal/outbound": {layer: support},
	"internal/loglimit": {layer: support, mayLog: true /* it is a handler */},

	"internal/agent": {layer: role, theirs: sys, whyTheir: "closes pidfds",
		ours: []string{
			"internal/attrib", "internal/catalog", "internal/cgroup", "internal/ci", "internal/docker", "internal/machine", "internal/netns",
			"internal/process", "internal/procevents", "internal/tally", "internal/watch",
		}},
	"internal/export":  {layer: role, ours: []string{"internal/catalog", "internal/series", "internal/tally"}},
	"internal/notes":   {layer: role, ours: []string{"internal/filter", "internal/queue", "internal/store", "internal/summary"}},
	"internal/daybook": {layer: role, ours: []string{"internal/httpapi", "internal/store"}},
	"internal/refine":  {layer: role, ours: []string{"internal/catalog", "internal/filter", "internal/queue", "internal/section", "internal/store", "internal/tally"}},
	"internal/bridge":  {layer: role, ours: []string{"internal/catalog", "internal/scrape", "internal/series", "internal/tally"}},
	"internal/hooks":   {layer: role, ours: []string{"internal/catalog", "internal/httpapi", "internal/queue", "internal/tally"}},
	"internal/jobsocket": {layer: role, ours: []string{"internal/catalog", "internal/display", "internal/summary", "internal/tally"},
		theirs: sys, whyTheir: "credentials of a socket's peer"},
	"internal/runnerjobs": {layer: role, ours: []string{"internal/ci/github"}},
	"internal/poll":       {layer: role, ours: []string{"internal/catalog", "internal/queue", "internal/tally"}},
	"internal/push":       {layer: role, ours: []string{"internal/catalog", "internal/display", "internal/outbound", "internal/spool", "internal/tally", "internal/wire"}},
	"internal/server":     {layer: role, ours: []string{"internal/catalog", "internal/httpapi", "internal/store", "internal/tally", "internal/wire"}},
	"internal/wrap":       {layer: role, ours: []string{"internal/attrib", "internal/counter"}, theirs: sys, whyTheir: "clone into a cgroup, wait4, prctl"},

	"cmd/cimeter": {layer: wiring,
		theirs:   []string{"github.com/alecthomas/kong", "github.com/prometheus/common/promslog", "golang.org/x/sys"},
		whyTheir: "command line; log lines in Prometheus' manner; parameters of the own process"},

	"meter": {layer: library, ours: []string{
		"internal/catalog", "internal/export", "internal/output/expvar", "internal/output/prometheus", "internal/output/statsd",
		"internal/series", "internal/tally",
	}},
	"meter/otlp":        {layer: library, ours: []string{"internal/export", "internal/output/otlp", "internal/output/post"}},
	"meter/remotewrite": {layer: library, ours: []string{"internal/export", "internal/output/post", "internal/output/remotewrite"}},

	"bench":               {layer: forTests},
	"bench/floor":         {layer: forTests, theirs: sys, whyTheir: "the clock of a thread's CPU time"},
	"bench/load":          {layer: forTests, ours: []string{"internal/push", "internal/spool", "internal/tally", "internal/wire"}},
	"e2e":                 {layer: forTests},
	"e2e/burn":            {layer: forTests, theirs: sys, whyTheir: "burns known amounts of CPU, disk and network"},
	"examples/toyci":      {layer: forTests, ours: []string{"meter", "meter/otlp"}},
	"internal/archtest":   {layer: forTests},
	"internal/dashboard":  {layer: forTests, ours: []string{"internal/catalog"}},
	"internal/ci/citest":  {layer: forTests, ours: []string{"internal/ci/ask", "internal/queue"}},
	"internal/webtest":    {layer: forTests, ours: []string{"internal/filter", "internal/queue", "internal/section", "internal/web"}, theirs: []string{"github.com/chromedp/chromedp", "github.com/chromedp/cdproto"}, whyTheir: "drives a real Chromium"},
	"internal/storetest":  {layer: forTests, ours: []string{"internal/filter", "internal/queue", "internal/store"}},
	"internal/testtools":  {layer: forTests, theirs: sys, whyTheir: "looks whether a program has ended and leaves its status to others"},
	"internal/testdocker": {layer: forTests, theirs: []string{"github.com/moby/moby/client", "github.com/moby/moby/api", "golang.org/x/sys"}, whyTheir: "plays a CI runner on a real engine"},
}

// The longest that a file is without a reason, in lines. Tables of cases make
// tests longer.
const (
	maxLines     = 400
	maxTestLines = 600
)

// longFiles are the files of more lines, with the reason.
var longFiles = map[string]string{}
