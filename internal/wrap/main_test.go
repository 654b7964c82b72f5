package wrap_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
	"github.com/cimeter/cimeter/internal/wrap"
)

// asProgram makes the test binary the program under test: it runs its arguments
// as cimeter run does and writes the report to the file that the variable names.
const asProgram = "WRAP_TEST_REPORT"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], "helper-") {
		helper(os.Args[1:])
		os.Exit(0)
	}
	if file := os.Getenv(asProgram); file != "" {
		os.Exit(program(file, os.Args[1:]))
	}
	// Whoever runs the tests may ignore signals (nohup, a shell's background):
	// a signal that is handled here has its default effect in the commands.
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	os.Exit(m.Run())
}

// helper is what tests have metered: helper-burn DURATION spends CPU time and
// prints how much in nanoseconds; helper-touch BYTES fills memory; helper-write
// FILE BYTES writes directly to the disk; helper-terminal says what its standard
// input is and what the terminal sends it.
func helper(args []string) {
	switch args[0] {
	case "helper-burn":
		d, _ := time.ParseDuration(args[1])
		var spent time.Duration
		for x := uint32(1); spent < d; {
			for range 100_000 {
				x ^= x<<13 ^ x>>17
			}
			var ru syscall.Rusage
			_ = syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
			spent = time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
		}
		fmt.Println(spent.Nanoseconds())
	case "helper-touch":
		n, _ := strconv.Atoi(args[1])
		b := make([]byte, n)
		for i := 0; i < n; i += 4096 {
			b[i] = 1
		}
		fmt.Println(b[0])
	case "helper-write":
		n, _ := strconv.Atoi(args[2])
		fd, err := unix.Open(args[1], unix.O_WRONLY|unix.O_CREAT|unix.O_DIRECT, 0o600)
		if err == nil {
			var b []byte
			if b, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err == nil {
				_, err = unix.Write(fd, b)
			}
		}
		fmt.Println(err)
	case "helper-terminal":
		ch := make(chan os.Signal, 1)
		signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM)
		_, err := unix.IoctlGetTermios(0, unix.TCGETS)
		fmt.Println("terminal", err == nil)
		fmt.Println(<-ch)
	}
}

// program is a small cimeter run: [--stage NAME] COMMAND ...
func program(file string, args []string) int {
	o := wrap.Options{Env: os.Environ(), Getenv: os.Getenv, Machine: "machine", Pid: os.Getpid(), Proc: "/proc", Open: opener()}
	if args[0] == "--stage" {
		o.Stage, args = args[1], args[2:]
	}
	o.Command = args
	o.Dir, _ = os.Getwd()
	rep, err := wrap.Run(o)
	if start := (*wrap.StartError)(nil); errors.As(err, &start) {
		fmt.Fprintln(os.Stderr, start)
		return start.Code
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	if !rep.Nested {
		b, err := json.Marshal(rep)
		if err == nil {
			err = os.WriteFile(file, b, 0o666)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if rep.Status.Signaled() {
		wrap.Die(rep.Status.Signal())
		return 98
	}
	return rep.Status.ExitStatus()
}

func opener() func(string) (wrap.Group, cimeter.Limits, error) {
	var host *cgroup.Host
	return func(path string) (_ wrap.Group, l cimeter.Limits, err error) {
		if host == nil {
			if host, err = cgroup.Open(cgroup.Options{}); err != nil {
				return nil, l, err
			}
		}
		g, err := host.Group(path)
		if err != nil {
			return nil, l, err
		}
		return group{g}, g.Limits(), nil
	}
}

type group struct{ *cgroup.Group }

func (g group) Read(s *cimeter.Sample, full bool) error {
	if full {
		return g.Group.Read(s, cgroup.Full)
	}
	return g.Group.Read(s, cgroup.Fast)
}

// environ returns the environment for the program under test, without a run
// around it.
func environ(file string, more ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, wrap.DirVariable+"=") && !strings.HasPrefix(kv, "CI_") {
			env = append(env, kv)
		}
	}
	return append(append(env, asProgram+"="+file), more...)
}
