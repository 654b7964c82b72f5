package process

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Capabilities is a set of capabilities (capabilities(7)), bit n for number n of
// uapi linux/capability.h.
type Capabilities uint64

// The capabilities that open something to cimeter.
const (
	DACReadSearch Capabilities = 1 << unix.CAP_DAC_READ_SEARCH // with SYS_PTRACE: io and environ of other users' processes
	SysPtrace     Capabilities = 1 << unix.CAP_SYS_PTRACE      // namespaces of other users' processes
	SysAdmin      Capabilities = 1 << unix.CAP_SYS_ADMIN
	SysResource   Capabilities = 1 << unix.CAP_SYS_RESOURCE
	NetAdmin      Capabilities = 1 << unix.CAP_NET_ADMIN // the kernel's events of processes
	SysNice       Capabilities = 1 << unix.CAP_SYS_NICE  // a lower nice value than it was started with
)

// OwnCapabilities returns the effective set of this process.
func OwnCapabilities() (Capabilities, error) {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var d [2]unix.CapUserData
	if err := unix.Capget(&h, &d[0]); err != nil {
		return 0, fmt.Errorf("read own capabilities: %w", err)
	}
	return Capabilities(d[0].Effective) | Capabilities(d[1].Effective)<<32, nil
}

// Has reports whether all of want are in c.
func (c Capabilities) Has(want Capabilities) bool { return c&want == want }

// Names returns the names of those in c in the kernel's order, without CAP_:
// "SYS_PTRACE". One that is newer than this program is "CAP<number>".
func (c Capabilities) Names() []string {
	var names []string
	for i := range 64 {
		switch {
		case c&(1<<i) == 0:
		case i < len(capabilityNames):
			names = append(names, capabilityNames[i])
		default:
			names = append(names, fmt.Sprintf("CAP%d", i))
		}
	}
	return names
}

func (c Capabilities) String() string { return strings.Join(c.Names(), " ") }

// capabilityNames are those of linux/capability.h of Linux 6.18, by number.
var capabilityNames = [...]string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
	"LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
	"SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
	"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
	"MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
	"CHECKPOINT_RESTORE",
}
