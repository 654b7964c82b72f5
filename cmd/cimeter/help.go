package main

// The long texts of --help: what a sub-command does, examples, exit codes.
// Indented lines stay as they are.

const description = `cimeter tells what every build of a CI fleet cost, stage by stage, in CPU, memory, disk and network.

Exit codes: 0 done; 1 failed, or check found something wrong; 2 the command line was wrong. "cimeter run" exits as the command it ran.`

const agentHelp = `
The agent watches the containers that CI runners start on this machine, reads the kernel's counters when each begins and ends, and keeps one record for each build. It serves:

  /metrics               Prometheus text and OpenMetrics
  /api/v1/builds         finished builds, newest first
  /healthz, /readyz      for probes

It asks container engines (--docker, --podman, --cri) for events, the list, inspection and version, and changes nothing there.

SIGTERM and SIGINT end it: running builds are saved, at most 10 s; a second signal ends it at once.

Examples:

  cimeter agent
  cimeter agent --config /etc/cimeter.yaml --log.level debug
  cimeter agent --listen 127.0.0.1:9808 --data /srv/cimeter

Exit codes: 0 after a signal; 1 when it could not start or go on; 2 for a wrong command line.

Everything else is set in the configuration file: see docs/config.md.`

const topHelp = `
It is a live table of the builds that run on the machine of an agent or, asked of a server, on all machines: project, job, stage, time, CPU, memory; a wider terminal shows disk, network, limits, runner and key too. "?" lists the keys. A rate is taken over some ten seconds, so it comes with the second reading. An agent tells the largest memory so far, a server what it is now.

When the server does not answer, the last state stays with its age. On a machine that is not heard of, builds are shown as they were last known.

Where standard input or output is no terminal, or TERM is dumb, the table is printed once as plain text, as wide as $COLUMNS says or 160.

Examples:

  cimeter top
  cimeter top --server https://cimeter.example.com
  cimeter top --format json | jq '.builds[] | select(.cpu_cores > 2)'

Exit codes: 0 done; 1 the agent or server could not be asked; 2 for a wrong command line; 128 and the number of the signal that ended it. The terminal is left as it was, whatever ends it.`

const buildsHelp = `
An agent lists what it keeps; a server, the builds of its fleet, with more filters and in another order if asked to.

Examples:

  cimeter builds
  cimeter builds --format csv --all > builds.csv
  cimeter builds --server https://cimeter.example.com --query 'result:failed mem>90%' --since 7d --sort cpu
  CIMETER_SERVER=http://ci-7:9808 cimeter builds --format ndjson

Exit codes: 0 done; 1 the agent or server could not be asked, or refused a filter that it does not know; 2 for a wrong command line.`

const summaryHelp = `
The build is named by its key, as "cimeter builds" lists it, or by what only its key ends with.

Without a name it is the build that this runs in: inside of a job, the agent is asked through its socket, which tells the job of itself and of nothing else. That never fails a job and takes some milliseconds; where there is no agent, there is no summary. See docs/summary.md.

Examples:

  cimeter summary gitlab/gitlab.example.com/4242
  cimeter summary 4242 --markdown
  cimeter summary 4242 --json | jq .usage.cpu_seconds
  cimeter summary --failed short --gitlab-metrics metrics.txt

Exit codes: 0 done, and always inside of a job without --strict; 1 no such build, several of them, or the agent or server could not be asked; 2 for a wrong command line.`

const compareHelp = `
A and B are builds: keys, as "cimeter builds" lists them, or what only a key ends with. One of the two may be a word that means builds of the other's job that ended before it:

  median:N               the median of the last N, canceled ones left out; "median" is median:20
  last-green             the last that succeeded
  main                   the last on that branch or tag

With one build only it is B, and A is median:20. The table shows CPU, time and peak of memory, stage by stage, the largest difference of CPU first; "~" marks a difference within the spread of the job's last 20 builds: less than a tenth, or than three times their median deviation.

Examples:

  cimeter compare 4242
  cimeter compare 4241 4242
  cimeter compare last-green 4242 --markdown
  cimeter compare main 4242 --json | jq '.figures[] | select(.ratio > 1.1)'

Exit codes: 0 done; 1 no such build, several of them, or the agent or server could not be asked; 2 for a wrong command line.`

const storeHelp = `
Examples:

  cimeter store migrate --data /srv/cimeter
  cimeter store backup /backup/cimeter.db --data /srv/cimeter
  cimeter store check /backup/cimeter.db`

const storeMigrateHelp = `
A server does this by itself when it starts. Do it before where the servers' user may not change the schema, or to see it done: end the servers, back the store up, migrate. What is up to date stays as it is.

Examples:

  cimeter store migrate
  cimeter store migrate --data /srv/cimeter
  CIMETER_DATABASE=postgres://owner:...@db/cimeter cimeter store migrate

Exit codes: 0 the schema is up to date; 1 there is no store, or it could not be brought up to date; 2 for a wrong command line.`

const storeBackupHelp = `
The copy is a store as it was at one instant; the server may go on meanwhile. It is there whole or not at all, and only its owner may read it. To use it, put it in the place of store/cimeter.db in the directory of an ended server, without the files beside it whose names end with -wal and -shm.

A store in PostgreSQL is copied by pg_dump.

Examples:

  cimeter store backup /backup/cimeter.db
  cimeter store backup "/backup/cimeter-$(date +%F).db" --data /srv/cimeter

Exit codes: 0 done; 1 there is no store, FILE is there already, or it could not be written; 2 for a wrong command line.`

const storeCheckHelp = `
All of the file is read, its indexes against its rows; the server may go on meanwhile, and nothing is changed. A server that starts reads as much of it as a second allows. A store in PostgreSQL is checked by pg_amcheck.

Of a file that is damaged you are told where, and what to do; so you are when the disk does not give what the file holds.

Examples:

  cimeter store check
  cimeter store check /backup/cimeter.db

Exit codes: 0 the store is whole; 1 there is no store, it is damaged, or it could not be read; 2 for a wrong command line.`

const checkHelp = `
Everything that is wrong with the configuration is named at once, with its place and what is accepted. Then cimeter says what it can meter on this machine and as this user: how the cgroups are laid out, whether Docker answers, and what each missing capability costs. The server, receivers of outputs, sources, Consul and CI servers are asked whether they are there; no record and no figure is sent to them.

Examples:

  cimeter check
  cimeter check --config /etc/cimeter.yaml

Exit codes: 0 the configuration is good; 1 it is not; 2 for a wrong command line. What cannot be metered is named but does not fail the check.`

const completionHelp = `
Examples:

  source <(cimeter completion bash)
  cimeter completion zsh > "${fpath[1]}/_cimeter"
  cimeter completion fish > ~/.config/fish/completions/cimeter.fish`

const versionHelp = `
Examples:

  cimeter version
  cimeter version --json`

// Help is the end of --help.
func (c *runCmd) Help() string { return runHelp }

const runHelp = `
The command runs as it would without cimeter: its standard input, terminal, signals and exit code are passed through, and it never fails because something could not be metered. It gets a cgroup of its own where that is allowed, else its process tree is followed. The summary goes to standard error.

A cimeter run inside another one is a stage of its build.

Examples:

  cimeter run -- make -j8
  cimeter run --project group/app --json build.json -- ./ci.sh
  cimeter run -- sh -ec 'cimeter run --stage build -- make; cimeter run --stage test -- make test'

Exit codes: those of the command; 128 and the number of the signal that ended it; 127 when there is no such command, 126 when it cannot be run; 2 for a wrong command line.`
