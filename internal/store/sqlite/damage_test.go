package sqlite_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/store/sqlite"
)

// childReads opens a file, reads every build of it or checks it, and tells the
// error; what is asked for waits for a line of its input.
func childReads(ctx context.Context, path, what string) error {
	wait := func(now string) {
		if now == what {
			fmt.Println("at", now)
			bufio.NewReader(os.Stdin).ReadString('\n')
		}
	}
	wait("open")
	s, err := sqlite.Open(ctx, sqlite.Options{Path: path, CheckTime: time.Nanosecond}) // so that little of it is known yet
	if err != nil {
		return err
	}
	defer s.Close()
	wait("each")
	if err := s.Each(ctx, nil, true, func(*cimeter.Record) error { return nil }); err != nil {
		return err
	}
	wait("check")
	return s.Check(ctx)
}

// A disk that does not read is told apart from a file that is damaged, for which
// SQLite takes it: who then puts a backup in its place loses what the disk may
// still give.
func TestOpen_diskFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "builds.sqlite")
	s := openAt(t, path)
	put(t, s, 60)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{"open", "each", "check"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), "STORE_CHILD="+path, "STORE_CHILD_READS="+what)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		said := bufio.NewReader(out)
		if line, err := said.ReadString('\n'); line != "at "+what+"\n" {
			t.Fatalf("%q, %v", line, err)
		}
		end := failReads(t, cmd.Process.Pid, path)
		fmt.Fprintln(in)
		b, _ := io.ReadAll(said)
		cmd.Wait()
		end()
		if text := string(b); strings.Contains(text, "is damaged") || !strings.Contains(text, "the disk failed") || !strings.Contains(text, path) && what != "each" {
			t.Errorf("%s: %s; want to hear that the disk failed, not that the file is damaged", what, text)
		}
	}
	if err := childReads(t.Context(), path, ""); err != nil {
		t.Errorf("when the disk reads again: %v", err)
	}
}

// failReads makes each read of a file by a process fail, until it is called.
func failReads(t *testing.T, pid int, path string) (end func()) {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("strace(1) is missing: scripts/setup.sh installs it")
	}
	cmd := exec.Command(strace, "-f", "-o", "/dev/null", "-P", path, "-e", "trace=pread64,read", "-e", "inject=pread64,read:error=EIO", "-p", strconv.Itoa(pid))
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	for said.Scan() {
		if strings.Contains(said.Text(), " attached") {
			go io.Copy(io.Discard, out)
			return func() {
				cmd.Process.Kill()
				cmd.Wait()
			}
		}
	}
	t.Fatalf("strace: %v: want the permission to trace", cmd.Wait())
	return nil
}
