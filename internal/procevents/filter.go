package procevents

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// attachFilter lets through forks of processes, execs, and exits of processes:
// a third of what a machine of many threads tells. Fields are in the machine's
// byte order, the filter's loads in the network's: a field is compared with
// another as it is, with a constant swapped.
func attachFilter(fd int) error {
	const (
		word  = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		equal = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		same  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_X
		keep  = unix.BPF_MISC | unix.BPF_TAX
		ret   = unix.BPF_RET | unix.BPF_K
	)
	// Jt and Jf count the instructions to leave out.
	code := []unix.SockFilter{
		{Code: word, K: offsetWhat},
		{Code: equal, K: wire(eventExec), Jt: 11},
		{Code: equal, K: wire(eventFork), Jt: 2},
		{Code: equal, K: wire(eventExit), Jt: 5},
		{Code: ret, K: 0},
		{Code: word, K: offsetData + 8}, // a fork: the child's thread
		{Code: keep},
		{Code: word, K: offsetData + 12}, // and process
		{Code: same, Jt: 4, Jf: 5},
		{Code: word, K: offsetData}, // an exit: the thread
		{Code: keep},
		{Code: word, K: offsetData + 4}, // and the process
		{Code: same, Jt: 0, Jf: 1},
		{Code: ret, K: 1<<32 - 1}, // all of it
		{Code: ret, K: 0},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]})
}

// wire is what the filter loads where the kernel wrote v.
func wire(v uint32) uint32 {
	var b [4]byte
	binary.NativeEndian.PutUint32(b[:], v)
	return binary.BigEndian.Uint32(b[:])
}
