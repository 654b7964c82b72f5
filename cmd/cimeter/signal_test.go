package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// stuck is a program of a role that does not stop when it is asked to. Its
// argument bounds the time that it may take.
func stuck() {
	drain, err := time.ParseDuration(os.Args[1])
	if err != nil {
		panic(err)
	}
	ctx, stop := drainUntilSignal(drain)
	defer stop()
	fmt.Println("running")
	<-ctx.Done()
	fmt.Println("stopping")
	select {}
}

func TestUntilSignal(t *testing.T) {
	start := func(t *testing.T, drain string) (*exec.Cmd, func(want string)) {
		cmd := exec.Command("stuck", drain)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		lines := bufio.NewScanner(out)
		return cmd, func(want string) {
			t.Helper()
			if !lines.Scan() || lines.Text() != want {
				t.Fatalf("got %q, want %q", lines.Text(), want)
			}
		}
	}
	send := func(t *testing.T, cmd *exec.Cmd, s os.Signal) {
		t.Helper()
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run("a second "+s.String()+" ends it at once", func(t *testing.T) {
			cmd, expect := start(t, "1h")
			expect("running")
			send(t, cmd, s)
			expect("stopping")
			send(t, cmd, s)
			exit, ok := errors.AsType[*exec.ExitError](cmd.Wait())
			if !ok || exit.Sys().(syscall.WaitStatus).Signal() != s {
				t.Errorf("got %v, want that it ended by %v", exit, s)
			}
		})
	}
	t.Run("it ends when the time to stop is over", func(t *testing.T) {
		cmd, expect := start(t, "1ms")
		expect("running")
		send(t, cmd, syscall.SIGTERM)
		exit, ok := errors.AsType[*exec.ExitError](cmd.Wait())
		if !ok || exit.ExitCode() != exitFailure {
			t.Errorf("got %v, want exit code %d", exit, exitFailure)
		}
	})
}
