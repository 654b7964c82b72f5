package postgres_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/postgres"
	"github.com/cimeter/cimeter/internal/storetest"
)

// child is another server on the same database: it leads, or puts what it is
// told, until it is killed.
func child(url string) {
	ctx := context.Background()
	die, _ := strconv.Atoi(os.Getenv("STORE_CHILD_DIES"))
	within, _ := time.ParseDuration(os.Getenv("STORE_CHILD_WITHIN"))
	does := os.Getenv("STORE_CHILD_DOES")
	s, err := postgres.OpenFault(ctx, postgres.Options{URL: url, Migrate: does == "migrate"}, func(n int) {
		kill := func() { syscall.Kill(os.Getpid(), syscall.SIGKILL) }
		switch {
		case n == die && within > 0: // while the database works on it
			time.AfterFunc(within, kill)
		case n == die:
			kill()
		}
	})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	switch does {
	case "migrate":
		fmt.Println("migrated")
	case "lead":
		if _, _, err := s.Lead(ctx, "poller"); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println("leads")
		select {}
	case "retain":
		if err := childRetains(ctx, s); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	case "put":
		for n := 0; n < 3000; n += 10 {
			if _, err := s.Put(ctx, batch(n)); err != nil {
				fmt.Println("error", err)
				os.Exit(1)
			}
			fmt.Println("ack", n)
		}
	}
}

// batch is ten records that any process makes alike. The last two are what other
// machines did of a build of it, and of one of the batch before.
func batch(n int) []store.Put {
	of := func(n int) []store.Put { return storetest.NewMaker(uint64(n), 20*24*time.Hour).Puts(n, 10) }
	puts := of(n)
	puts[8] = of(n)[0]
	puts[8].Record.Machine = "node-8"
	// And what that machine did after its agent was restarted.
	puts[7] = of(n)[0]
	later := puts[7].Record
	later.Machine, later.StartedAt, later.EndedAt = "node-8", later.EndedAt.Add(time.Minute), later.EndedAt.Add(2*time.Minute)
	if n >= 10 {
		puts[9] = of(n - 10)[0]
		puts[9].Record.Machine = "node-9"
	}
	return puts
}

func startChild(t *testing.T, url string, env ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "STORE_CHILD="+url)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewScanner(out)
}

func TestLead_killed(t *testing.T) {
	url := database(t)
	s := openURL(t, url)
	cmd, out := startChild(t, url, "STORE_CHILD_DOES=lead")
	if !out.Scan() || out.Text() != "leads" {
		t.Fatalf("child: %s", out.Text())
	}
	followed := make(chan error, 1)
	var held <-chan struct{}
	var release func()
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		var err error
		held, release, err = s.Lead(ctx, "poller")
		followed <- err
	}()
	select {
	case err := <-followed:
		t.Fatalf("two lead at once: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	cmd.Process.Kill()
	cmd.Wait()
	if err := <-followed; err != nil {
		t.Fatalf("nobody leads 15 s after the leader was killed: %v", err)
	}
	defer release()
	// The database ends the session: the leader hears of it.
	if err := s.Exec(t.Context(), "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-held:
	case <-time.After(15 * time.Second):
		t.Error("a leader whose session ended still leads")
	}
}

// part is what one machine told of a build.
type part struct {
	key, machine string
	from         int64
}

func partOf(r *cimeter.Record) part {
	key := r.Key
	if build, ok := store.BuildOf(key); ok { // whoever came first has the build's own
		key = build
	}
	return part{key, r.Machine, store.Micros(r.StartedAt)}
}

// TestServers_sameRecords has several servers put the same records at once, one
// of them killed.
func TestServers_sameRecords(t *testing.T) {
	url := database(t)
	s := openURL(t, url)
	cmd, out := startChild(t, url, "STORE_CHILD_DOES=put")
	var wg sync.WaitGroup
	stored := make([]int, 2)
	for i := range stored {
		other := openURL(t, url)
		wg.Go(func() {
			for n := 290; n >= 0; n -= 10 {
				got, err := other.Put(t.Context(), batch(n))
				if err != nil {
					t.Errorf("Put: %v", err)
				}
				stored[i] += got.Stored
			}
		})
	}
	acknowledged := map[int]bool{}
	for i := 0; i < 10 && out.Scan(); i++ {
		if n, ok := strings.CutPrefix(out.Text(), "ack "); ok {
			v, _ := strconv.Atoi(n)
			acknowledged[v] = true
		} else {
			t.Errorf("child: %s", out.Text())
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
	wg.Wait()
	there := map[part]int{}
	if err := s.Each(t.Context(), nil, true, func(r *cimeter.Record) error { there[partOf(r)]++; return nil }); err != nil {
		t.Fatal(err)
	}
	for n := 0; n < 300; n += 10 {
		for _, p := range batch(n) {
			if of := partOf(p.Record); there[of] != 1 {
				t.Fatalf("%v is there %d times", of, there[of])
			}
		}
	}
	g, err := s.Groups(t.Context(), store.GroupQuery{By: store.ByMachine, From: storetest.Base.AddDate(0, 0, -40), To: storetest.Base})
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, x := range g.Groups {
		sum += int(x.Builds)
	}
	if want := len(there) - 30; sum != want { // what one machine did of a build twice is counted once
		t.Errorf("rollups of %d builds, want %d", sum, want)
	}
	t.Logf("%d builds: %d and %d stored by the two, %d batches acknowledged to the killed one", len(there), stored[0], stored[1], len(acknowledged))
}

// TestServers_migrate has servers start at once on an empty database.
func TestServers_migrate(t *testing.T) {
	url := database(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			s, err := postgres.Open(t.Context(), postgres.Options{URL: url})
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if _, err := s.Put(t.Context(), batch(10)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s := openURL(t, url)
	_, want, err := postgres.Version(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	st, err := s.Stats(t.Context())
	if err != nil || st.Version != want || st.Builds != 8 { // two of the batch are parts of another
		t.Errorf("Stats = %+v, %v", st, err)
	}
}
