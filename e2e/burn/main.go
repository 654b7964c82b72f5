// Command burn spends known amounts of CPU time, memory, disk and network
// traffic inside a container and leaves a line of truth about it: what a meter
// has to find.
//
//	burn [STEP]...
//
// Steps run one after the other:
//
//	cpu=SECONDS           user time, by getrusage
//	system=SECONDS        CPU time spent mostly in the kernel
//	write=BYTES:FILE      past the page cache (O_DIRECT); BYTES a multiple of 4096
//	read=BYTES:FILE       the same, of a file that write made
//	send=BYTES:ADDR       over TCP, to the sink of the tests
//	receive=BYTES:ADDR    over TCP, from the sink of the tests
//	mem=BYTES             touched once, then given back
//	sleep=SECONDS
//	mark=FILE             makes the file
//	await=FILE            waits until the file is there
//	fork=DEPTH:SECONDS    a chain of child processes, each burning SECONDS of CPU
//	oom                   allocates until it is killed; the truth is written before
//	oomchild              the same in a child, and goes on
//	throttle=PERIODS      spins until the kernel has throttled the container in so many
//	exit=CODE             ends with CODE, after the truth is written
//	join=FILE             moves itself to another cgroup by its cgroup.procs
//
// The truth goes to $BURN_TRUTH/$BURN_NAME.json, synced to disk, before burn
// ends; without BURN_TRUTH there is none. Called by another name (git,
// gitlab-runner-helper) it takes what comes before the argument "--" for that
// program's arguments and ignores it, so that its command line looks real.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// truth is the line that burn leaves. Sizes are in bytes, times in nanoseconds.
type truth struct {
	Name            string `json:"name"`
	CPU             int64  `json:"cpu_ns"`           // by getrusage: this process and its children
	CgroupCPU       int64  `json:"cgroup_cpu_ns"`    // by the kernel, of the container's own cgroup
	MemoryPeak      int64  `json:"memory_peak"`      // by the kernel; 0 where it gives none
	ReadBytes       int64  `json:"read_bytes"`       // direct
	WriteBytes      int64  `json:"write_bytes"`      // direct
	KernelRead      int64  `json:"kernel_read"`      // by the kernel, whoever asked for it
	KernelWrite     int64  `json:"kernel_write"`     // likewise
	NetworkReceive  int64  `json:"network_receive"`  // by the kernel, without the loopback
	NetworkTransmit int64  `json:"network_transmit"` // by the kernel, without the loopback
	OOM             bool   `json:"oom,omitempty"`    // about to be killed
	Throttled       int64  `json:"throttled_periods"`
	ExitCode        int    `json:"exit_code"`
}

func main() {
	steps := os.Args[1:]
	if filepath.Base(os.Args[0]) != "burn" {
		at := slices.Index(steps, "--")
		steps = steps[at+1:]
	}
	b := burner{}
	for _, step := range steps {
		if err := b.run(step); err != nil {
			fmt.Fprintf(os.Stderr, "burn: %s: %v\n", step, err)
			os.Exit(125)
		}
	}
	if err := b.tell(); err != nil {
		fmt.Fprintf(os.Stderr, "burn: %v\n", err)
		os.Exit(125)
	}
	os.Exit(b.truth.ExitCode)
}

type burner struct {
	truth truth
	net   bool
}

// run runs one step.
func (b *burner) run(step string) error {
	name, arg, _ := strings.Cut(step, "=")
	size, rest, _ := strings.Cut(arg, ":")
	switch name {
	case "cpu":
		return forSeconds(arg, spin)
	case "system":
		return forSeconds(arg, func() { _, _ = os.Stat("/") })
	case "sleep":
		s, err := strconv.ParseFloat(arg, 64)
		if err != nil {
			return err
		}
		time.Sleep(time.Duration(s * float64(time.Second)))
		return nil
	case "join":
		return os.WriteFile(arg, []byte("0"), 0)
	case "mark":
		return os.WriteFile(arg, nil, 0o666)
	case "await":
		for {
			if _, err := os.Stat(arg); err == nil {
				return nil
			}
			time.Sleep(10 * time.Millisecond)
		}
	case "fork":
		return fork(size, rest)
	case "oom":
		b.truth.OOM = true
		if err := b.tell(); err != nil {
			return err
		}
		return exhaust()
	case "oomchild":
		err := child("oom").Run()
		if err == nil {
			return fmt.Errorf("the child was not killed")
		}
		return nil
	case "throttle":
		n, err := strconv.ParseInt(arg, 10, 64)
		if err != nil {
			return err
		}
		for begun := time.Now(); throttled() < n; {
			if time.Since(begun) > throttleTime {
				return fmt.Errorf("throttled in %d periods after %v", throttled(), throttleTime)
			}
			for range 20 {
				spin()
			}
		}
		return nil
	case "exit":
		n, err := strconv.Atoi(arg)
		b.truth.ExitCode = n
		return err
	}
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return err
	}
	switch name {
	case "mem":
		return touch(n)
	case "write":
		b.truth.WriteBytes += n
		return direct(rest, unix.O_WRONLY|unix.O_CREAT, n, unix.Write)
	case "read":
		b.truth.ReadBytes += n
		return direct(rest, unix.O_RDONLY, n, unix.Read)
	case "send":
		b.net = true
		return send(rest, n)
	case "receive":
		b.net = true
		return receive(rest, n)
	}
	return fmt.Errorf("no such step")
}

// throttleTime is how long a container may take to be throttled: with other work for
// the processors it rarely has its own share of them.
const throttleTime = 2 * time.Minute

// used is the CPU time of this process and of its children that have ended.
func used() (time.Duration, error) {
	var sum time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var r unix.Rusage
		if err := unix.Getrusage(who, &r); err != nil {
			return 0, fmt.Errorf("getrusage: %w", err)
		}
		sum += time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	return sum, nil
}

// forSeconds repeats f until it has used this much CPU time.
func forSeconds(text string, f func()) error {
	s, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return err
	}
	start, err := used()
	if err != nil {
		return err
	}
	for {
		now, err := used()
		if err != nil {
			return err
		}
		if now-start >= time.Duration(s*float64(time.Second)) {
			return nil
		}
		for range 20 {
			f()
		}
	}
}

// spin is some microseconds of work.
func spin() {
	x := uint64(os.Getpid())
	for range 5000 {
		x = x*6364136223846793005 + 1442695040888963407
	}
	if x == 0 {
		fmt.Print()
	}
}

func child(steps ...string) *exec.Cmd {
	c := exec.Command("/proc/self/exe", steps...)
	c.Args[0] = "burn"
	c.Env = []string{}
	return c
}

// fork burns in a chain of processes of this depth.
func fork(depth, seconds string) error {
	n, err := strconv.Atoi(depth)
	if err != nil || n < 1 {
		return err
	}
	steps := []string{"cpu=" + seconds}
	if n > 1 {
		steps = append(steps, fmt.Sprintf("fork=%d:%s", n-1, seconds))
	}
	if out, err := child(steps...).CombinedOutput(); err != nil {
		return fmt.Errorf("child: %w: %s", err, out)
	}
	return nil
}

// touch takes n bytes of memory, writes to each page and gives them back.
func touch(n int64) error {
	m, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	for i := 0; i < len(m); i += 4096 {
		m[i] = 1
	}
	return unix.Munmap(m)
}

// exhaust takes memory until the kernel ends it.
func exhaust() error {
	for range 1 << 20 {
		m, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			return err
		}
		for i := 0; i < len(m); i += 4096 {
			m[i] = 1
		}
	}
	return fmt.Errorf("there was enough memory")
}

// direct moves n bytes between a file and an aligned buffer, past the page
// cache.
func direct(path string, flags int, n int64, move func(int, []byte) (int, error)) error {
	if n%4096 != 0 {
		return fmt.Errorf("%d is not a multiple of 4096", n)
	}
	fd, err := unix.Open(path, flags|unix.O_DIRECT|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	buf, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	for n > 0 {
		k, err := move(fd, buf[:min(n, int64(len(buf)))])
		if err != nil {
			return err
		}
		if k == 0 {
			return fmt.Errorf("%d bytes too few in %s", n, path)
		}
		n -= int64(k)
	}
	return unix.Munmap(buf)
}

// tell writes the truth, once everything else is done.
func (b *burner) tell() error {
	folder := os.Getenv("BURN_TRUTH")
	if folder == "" {
		return nil
	}
	b.truth.Name = os.Getenv("BURN_NAME")
	if b.net {
		settle()
	}
	b.truth.NetworkReceive, b.truth.NetworkTransmit = traffic()
	b.truth.MemoryPeak = memoryPeak()
	b.truth.Throttled = throttled()
	b.truth.CgroupCPU = cgroupCPU()
	b.truth.KernelRead, b.truth.KernelWrite = blockIO()
	cpu, err := used()
	if err != nil {
		return err
	}
	b.truth.CPU = cpu.Nanoseconds()
	line, err := json.Marshal(b.truth)
	if err != nil {
		return err
	}
	return writeSynced(filepath.Join(folder, b.truth.Name+".json"), append(line, '\n'))
}

// writeSynced writes a file so that it is whole or not there, also after a
// power cut.
func writeSynced(path string, data []byte) error {
	f, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
