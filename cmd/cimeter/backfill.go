package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/filter"
	"github.com/cimeter/cimeter/internal/queue"
	"github.com/cimeter/cimeter/internal/store/postgres"
	"github.com/cimeter/cimeter/internal/store/sqlite"
)

// backfillCmd fills a server's store with what CI servers tell of the past.
type backfillCmd struct {
	storeFlags `embed:""`
	Kind       string `arg:"" enum:"gitlab,drone,woodpecker,gitea,forgejo,github,jenkins,buildkite" help:"Kind of the CI servers to ask: gitlab, drone, woodpecker, gitea, forgejo, github, jenkins or buildkite."`
	Since      string `default:"30d" placeholder:"TIME" help:"Builds that were made at TIME or later: 30d, 2026-11-01, or 2026-11-01T12:00:00Z; default ${default}."`
	Name       string `placeholder:"NAME" help:"Ask only the CI server of this name in the configuration."`
	Again      bool   `help:"Begin anew where an earlier run did not come to its end."`
}

// Help is the end of --help.
func (c *backfillCmd) Help() string { return backfillHelp }

const backfillHelp = `
It asks the CI servers of the configuration (ci_servers) for the builds of the past, through their API, and puts what they tell into the server's store: durations, time in the queue, results, tags. A build that no agent metered is listed without usage; one that an agent did keeps its usage. Nothing is there twice, however often this is run.

It makes at most as many requests a minute as the CI server's requests_per_minute allows. When it is ended, or the CI server fails for long, the next run goes on where it came to. Progress goes to standard error.

A store in SQLite must not be in use: end the server, backfill, start it again. A store in PostgreSQL may be.

Examples:

  cimeter backfill gitlab --config /etc/cimeter.yaml
  cimeter backfill drone --since 90d --name drone.example.com --config /etc/cimeter.yaml

Exit codes: 0 all builds are there; 1 not all, the next run goes on; 2 for a wrong command line.`

// past is what an adapter that can tell of past builds has: a page of them and the
// cursor of the next, "" behind the last. Its errors are those of poll.Source.
type past interface {
	Builds(ctx context.Context, since time.Time, cursor string) (jobs []cimeter.Job, next string, err error)
}

// pastStore is what a backfill needs of a store.
type pastStore interface {
	PutJobs(ctx context.Context, jobs []cimeter.Job) error
	Note(ctx context.Context, name string) (string, error)
	SetNote(ctx context.Context, name, value string) error
	Close() error
}

// pageRequests is how many requests a page of past builds takes at most, as the
// adapters say: for those that do not tell how many they made.
var pageRequests = map[string]int{"gitlab": 2, "drone": 27, "woodpecker": 27, "gitea": 32, "forgejo": 8, "github": 31, "jenkins": 25, "buildkite": 2}

// Run asks one CI server after the other.
func (c *backfillCmd) Run(e *env) error {
	now := time.Now()
	f, err := filter.Parse("since:" + strconv.Quote(c.Since))
	if err != nil || len(f) != 1 || f[0].Field != filter.Since {
		fmt.Fprintf(e.stderr, "cimeter: --since: %.64q: want 30d, 2026-11-01, or 2026-11-01T12:00:00Z\n", c.Since)
		return exitCode(exitUsage)
	}
	since := f.Resolve(now)[0].At
	conf, err := config.Load(c.Config)
	if err != nil {
		return err
	}
	servers := slices.DeleteFunc(slices.Clone(conf.CIServers), func(s config.CIServer) bool { return s.Kind != c.Kind || c.Name != "" && s.Name != c.Name })
	if len(servers) == 0 {
		return fmt.Errorf("backfill: no CI server of kind %s in the configuration: want one in ci_servers", c.Kind)
	}
	ctx, stop := untilSignal()
	defer stop()
	kept, err := c.open(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, s := range servers {
		made, err := newCIServer(s, e)
		if err == nil {
			from, ok := made.source.(past)
			if !ok {
				err = fmt.Errorf("backfill %s: nothing can be asked there: want ci_servers.token_file, the file of a token of %s: %w", s.Name, s.Kind, cimeter.ErrUnsupported)
			} else {
				b := backfill{name: s.Name, kind: s.Kind, from: from, to: kept, since: since, again: c.Again, out: e.stderr, now: time.Now, sleep: sleep,
					asked: made.asked, requests: pageRequests[s.Kind], each: time.Minute / time.Duration(cmp.Or(s.Requests, 60)), timeout: 10 * cmp.Or(s.Timeout, 30*time.Second)}
				err = b.run(ctx)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(append(errs, kept.Close())...)
}

// open opens the store. A SQLite file that a server uses is refused.
func (c *backfillCmd) open(ctx context.Context) (pastStore, error) {
	file, address, err := c.place()
	if err != nil {
		return nil, err
	}
	if !address.IsZero() {
		return postgres.Open(ctx, postgres.Options{URL: address.Reveal()})
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	return sqlite.Open(ctx, sqlite.Options{Path: file})
}

// sleep waits; false: ctx ended before.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// backfill is one CI server's past on its way into a store.
type backfill struct {
	name, kind string
	from       past
	to         pastStore
	since      time.Time
	again      bool
	asked      func() int64  // requests that from has made; nil: each page takes requests of them
	requests   int           // of a page at most
	each       time.Duration // that one request uses up of the limit: so long after a page the next one is asked for
	timeout    time.Duration // of a page
	out        io.Writer     // takes the progress
	now        func() time.Time
	sleep      func(ctx context.Context, d time.Duration) bool
}

// way is how far a backfill came: what is noted in the store.
type way struct {
	Since  time.Time `json:"since"`
	Cursor string    `json:"cursor"`
	Builds int       `json:"builds"`
	Pages  int       `json:"pages"`
}

const (
	// backfillTries is how often in a row a page is asked for.
	backfillTries = 8
	// firstWait is the time after a first failure; each wait is twice the one before.
	firstWait = 2 * time.Second
	lastWait  = 2 * time.Minute
	// tellEvery is the time between two lines of progress.
	tellEvery = 5 * time.Second
)

// run asks for page after page. What is noted is always behind what is stored: a
// page may be stored twice, which changes nothing, and none is left out.
func (b *backfill) run(ctx context.Context) error {
	note := "backfill/" + b.kind + "/" + b.name
	w, err := b.begin(ctx, note)
	if err != nil {
		return fmt.Errorf("backfill %s: %w", b.name, err)
	}
	var told time.Time // the first page is told at once
	for {
		pause := b.pause()
		jobs, next, err := b.page(ctx, w)
		if err == nil {
			err = b.to.PutJobs(ctx, jobs)
		}
		if err != nil {
			return fmt.Errorf("backfill %s: after %d builds: %w", b.name, w.Builds, err)
		}
		w.Cursor, w.Builds, w.Pages = next, w.Builds+len(jobs), w.Pages+1
		text := []byte(nil)
		if next != "" {
			if text, err = json.Marshal(w); err != nil {
				return fmt.Errorf("backfill %s: %w", b.name, err)
			}
		}
		if err := b.to.SetNote(ctx, note, string(text)); err != nil {
			return fmt.Errorf("backfill %s: %w", b.name, err)
		}
		if next == "" {
			fmt.Fprintf(b.out, "%s: %d builds since %s, all that there are\n", b.name, w.Builds, w.Since.UTC().Format("2006-01-02 15:04"))
			return nil
		}
		if now := b.now(); now.Sub(told) >= tellEvery {
			told = now
			fmt.Fprintf(b.out, "%s: %d builds, %d pages%s; next page in %s\n", b.name, w.Builds, w.Pages, lastOf(jobs), pause().Round(time.Second))
		}
		if !b.sleep(ctx, pause()) {
			return fmt.Errorf("backfill %s: ended after %d builds; the next run goes on there: %w", b.name, w.Builds, ctx.Err())
		}
	}
}

// pause returns what tells, after a page, how long its requests use up the limit.
func (b *backfill) pause() func() time.Duration {
	if b.asked == nil {
		return func() time.Duration { return time.Duration(b.requests) * b.each }
	}
	before := b.asked()
	return func() time.Duration { return time.Duration(b.asked()-before) * b.each }
}

// begin returns where an earlier run came to, when that is of the time that is
// asked for, else the start.
func (b *backfill) begin(ctx context.Context, note string) (way, error) {
	w := way{Since: b.since}
	text, err := b.to.Note(ctx, note)
	if err != nil || text == "" || b.again {
		return w, err
	}
	var found way
	if json.Unmarshal([]byte(text), &found) != nil || found.Since.After(b.since.Add(24*time.Hour)) {
		return w, nil // of less than what is asked for
	}
	fmt.Fprintf(b.out, "%s: goes on after %d builds, since %s (--again begins anew)\n", b.name, found.Builds, found.Since.UTC().Format("2006-01-02 15:04"))
	return found, nil
}

// page asks for a page, again when that may help.
func (b *backfill) page(ctx context.Context, w way) ([]cimeter.Job, string, error) {
	wait := firstWait
	for try := 1; ; try++ {
		within, stop := context.WithTimeout(ctx, b.timeout)
		jobs, next, err := b.from.Builds(within, w.Since, w.Cursor)
		stop()
		switch {
		case err == nil && next != "" && next == w.Cursor:
			return nil, "", fmt.Errorf("a page whose next is itself: %w", cimeter.ErrInvalid)
		case err == nil:
			return jobs, next, nil
		case ctx.Err() != nil:
			return nil, "", fmt.Errorf("ended; the next run goes on there: %w", ctx.Err())
		}
		pause := wait
		var said *queue.SourceError
		answered := errors.As(err, &said) && said.Status != 0
		if said != nil {
			pause = max(pause, said.RetryAfter)
		}
		switch reason := queue.Reason(err); {
		case try == backfillTries:
			return nil, "", err
		case reason == "timeout", reason == "limited", reason == "unavailable", reason == "refused" && !answered:
		default:
			return nil, "", err
		}
		fmt.Fprintf(b.out, "%s: %s; asks again in %s\n", b.name, display.Fit(display.Clean(err.Error()), 300, "…"), pause)
		if !b.sleep(ctx, pause) {
			return nil, "", fmt.Errorf("ended; the next run goes on there: %w", ctx.Err())
		}
		wait = min(2*wait, lastWait)
	}
}

// lastOf tells where in the past a page is.
func lastOf(jobs []cimeter.Job) string {
	for _, j := range slices.Backward(jobs) {
		if at := j.EndedAt; !at.IsZero() {
			return ", at " + display.Fit(display.Clean(cmp.Or(j.Project, j.Key)), 60, "…") + " " + at.UTC().Format("2006-01-02 15:04")
		}
	}
	return ""
}
