package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store"
	"github.com/cimeter/cimeter/internal/store/sqlite"
	"github.com/cimeter/cimeter/internal/storetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("STORE_CHILD"); path != "" {
		child(path)
		return
	}
	os.Exit(m.Run())
}

const childBatch = 3

// child writes batches and tells each that is acknowledged, until it kills
// itself before the statement that it is told.
func child(path string) {
	die, _ := strconv.Atoi(os.Getenv("STORE_CHILD_DIES"))
	first, _ := strconv.Atoi(os.Getenv("STORE_CHILD_FIRST"))
	fault := func(n int) {
		if n == die {
			syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
	ctx := context.Background()
	if to := os.Getenv("STORE_CHILD_BACKUP"); to != "" {
		for n := range 1000 {
			if err := sqlite.Backup(ctx, path, to+strconv.Itoa(n)); err != nil {
				fmt.Println("error", err)
				os.Exit(1)
			}
		}
		return
	}
	if what := os.Getenv("STORE_CHILD_READS"); what != "" {
		if err := childReads(ctx, path, what); err != nil {
			fmt.Println("error", err)
		}
		return
	}
	migrate := os.Getenv("STORE_CHILD_MIGRATES") != ""
	s, err := sqlite.OpenFault(ctx, sqlite.Options{Path: path, Migrate: migrate}, fault)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	if migrate {
		fmt.Println("ack", 0)
		return
	}
	keep := os.Getenv("STORE_CHILD_RETAINS") != ""
	for n := first; n < first+300; n += childBatch {
		puts := childPuts(n)
		got, err := s.Put(ctx, puts)
		if err == nil && keep && n%30 == 0 {
			_, err = s.Retain(ctx, store.Retention{KeepFrom: storetest.Base.AddDate(0, 0, -14)})
		}
		if err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		if got.Stored != childBatch {
			continue // sent again after a kill
		}
		fmt.Println("ack", n)
	}
}

// childPuts is a batch that any process makes alike. The last of it, but for the first
// batch, is what another machine did of a build of the batch before.
func childPuts(n int) []store.Put {
	of := func(n int) []store.Put { return storetest.NewMaker(uint64(n), 28*24*time.Hour).Puts(n, childBatch) }
	puts := of(n)
	if n >= childBatch {
		other := of(n - childBatch)[0]
		other.Record.Machine += "-other"
		puts[childBatch-1] = other
	}
	return puts
}

// childKeys are the keys under which a batch is kept.
func childKeys(n int) (keys []string) {
	for i, p := range childPuts(n) {
		if keys = append(keys, p.Record.Key); n >= childBatch && i == childBatch-1 {
			keys[i] = store.MachineKey(p.Record.Key, p.Record.Machine)
		}
	}
	return keys
}

// runChild runs a child until it ends and returns the batches acknowledged.
func runChild(t *testing.T, path string, env ...string) (acknowledged []int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), append(env, "STORE_CHILD="+path)...)
	out, _ := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for sc := bufio.NewScanner(out); sc.Scan(); {
		if number, ok := strings.CutPrefix(sc.Text(), "ack "); ok {
			n, _ := strconv.Atoi(number)
			acknowledged = append(acknowledged, n)
		} else {
			t.Errorf("child: %s", sc.Text())
		}
	}
	cmd.Wait()
	return acknowledged
}

// TestKill kills a writing process at random statements: what it acknowledged
// is there once, a batch is there whole or not at all.
func TestKill(t *testing.T) {
	random := storetest.Seeded(t)
	path := filepath.Join(t.TempDir(), "builds.sqlite")
	acknowledged := map[int]bool{}
	first := 0
	for round := range storetest.Rounds(t, 40) {
		for _, n := range runChild(t, path, "STORE_CHILD_FIRST="+strconv.Itoa(first), "STORE_CHILD_DIES="+strconv.Itoa(1+random.IntN(400))) {
			acknowledged[n] = true
			first = n
		}
		s := openAt(t, path)
		if round > 0 && !s.Unclean() {
			t.Error("a killed process left a clean store")
		}
		there := map[string]int{}
		if err := s.Each(t.Context(), nil, true, func(r *cimeter.Record) error { there[r.Key]++; return nil }); err != nil {
			t.Fatal(err)
		}
		m, parts := 0, 0
		for n := 0; n <= first+childBatch; n += childBatch {
			stored := 0
			for _, key := range childKeys(n) {
				stored += there[key]
				if _, part := store.BuildOf(key); part {
					parts += there[key]
				}
			}
			if stored != 0 && stored != childBatch || acknowledged[n] && stored == 0 {
				t.Fatalf("round %d: %d of batch %d are there, acknowledged %t", round, stored, n, acknowledged[n])
			}
			m += stored
		}
		g, err := s.Groups(t.Context(), store.GroupQuery{By: store.ByProject, From: storetest.Base.AddDate(0, 0, -40), To: storetest.Base, Limit: 1000})
		if err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, x := range g.Groups {
			sum += int(x.Builds)
		}
		st, err := s.Stats(t.Context())
		if err != nil || m != len(there) || sum != m-parts || int(st.Builds) != m-parts {
			t.Fatalf("round %d: %d records, %d of the batches, %d of them parts, rollups of %d builds, figures of %d, %v", round, len(there), m, parts, sum, st.Builds, err)
		}
		// Without Close: the next child finds what a kill leaves. The lock ends
		// with the file.
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Abandon(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d batches acknowledged", len(acknowledged))
}

// TestKill_retention kills the process while it deletes: nothing young goes.
func TestKill_retention(t *testing.T) {
	cut := storetest.Base.AddDate(0, 0, -14)
	random := storetest.Seeded(t)
	path := filepath.Join(t.TempDir(), "builds.sqlite")
	var young []string
	first := 0
	for range storetest.Rounds(t, 20) {
		for _, n := range runChild(t, path, "STORE_CHILD_FIRST="+strconv.Itoa(first), "STORE_CHILD_DIES="+strconv.Itoa(100+random.IntN(400)), "STORE_CHILD_RETAINS=1") {
			keys := childKeys(n)
			for i, p := range childPuts(n) {
				if !p.Record.EndedAt.Before(cut) {
					young = append(young, keys[i])
				}
			}
			first = n + childBatch
		}
		s := openAt(t, path)
		for _, key := range young {
			if _, err := s.Get(t.Context(), key); err != nil {
				t.Fatalf("a young build is gone: %v", err)
			}
		}
		st, err := s.Stats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		if err := s.Each(t.Context(), nil, false, func(r *cimeter.Record) error {
			if _, part := store.BuildOf(r.Key); !part {
				n++
			}
			return nil
		}); err != nil || int(st.Builds) != n {
			t.Fatalf("%d builds, figures say %d, %v", n, st.Builds, err)
		}
		if err := s.Abandon(); err != nil {
			t.Fatal(err)
		}
	}
	if len(young) < 20 {
		t.Errorf("%d young builds", len(young))
	}
}
