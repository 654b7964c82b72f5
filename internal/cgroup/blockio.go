package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cimeter/cimeter"
)

// BlockIO returns nil when block IO of cgroups is counted. Else the error says
// why it is not and wraps cimeter.ErrUnsupported; the readings are then absent.
//
// On v1 the throttling policy's counters count nothing on recent kernels until
// some cgroup of the host has had a throttle limit on the disk: the root
// group's file then does not list the disk. What is asked here is whether it
// lists each disk that has moved anything.
func (h *Host) BlockIO() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.probeBlockIO()
}

func (h *Host) probeBlockIO() error {
	io := h.of("blkio")
	if io < 0 {
		return fmt.Errorf("block IO: no hierarchy has the controller io (v2) or blkio (v1): %w", cimeter.ErrUnsupported)
	}
	if h.hierarchies[io].v2 {
		h.ioCounts = true
		return nil
	}
	name := h.blkioFile()
	path := filepath.Join(h.hierarchies[io].dir, name)
	b, errno := h.readPath(path)
	if errno != 0 {
		return fmt.Errorf("block IO: read %s: %w", path, errno)
	}
	listed, err := parseBlkio(b, false, nil)
	if err != nil {
		return fmt.Errorf("block IO: parse %s: %w", path, err)
	}
	h.ioCounts = len(listed) > 0
	disks, err := h.disks()
	if err != nil {
		return fmt.Errorf("block IO: %w", err)
	}
	var missing []string
	for _, d := range disks {
		used := d.reads > 0 || d.writes > 0
		if used && !slices.ContainsFunc(listed, func(l deviceIO) bool { return l.device == d.device }) {
			missing = append(missing, d.name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("block IO: the kernel does not count IO of cgroups on %s: want a throttle limit set there once (%s tells of no such disk): %w",
			strings.Join(missing, ", "), name, cimeter.ErrUnsupported)
	}
	// No disk has moved anything: nothing to count, nothing to tell.
	h.ioCounts = true
	return nil
}

// wakeLimit is a limit that no disk reaches, in bytes a second.
const wakeLimit = 1_000_000_000_000

// WakeBlockIO makes a v1 kernel count block IO: it sets a throttle limit that
// no disk reaches on every disk in a scratch cgroup of its own, takes it away
// again and removes the cgroup. From then on the kernel counts for all cgroups
// until it is restarted. On v2 there is nothing to do. The error wraps
// cimeter.ErrUnsupported when IO is still not counted.
func (h *Host) WakeBlockIO() (err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	io := h.of("blkio")
	if io < 0 || h.hierarchies[io].v2 {
		return h.probeBlockIO()
	}
	disks, err := h.disks()
	if err != nil {
		return fmt.Errorf("wake block IO: %w", err)
	}
	dir := filepath.Join(h.hierarchies[io].dir, fmt.Sprintf("cimeter-wake-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("wake block IO: %w", err)
	}
	defer func() {
		if e := syscall.Rmdir(dir); e != nil {
			err = errors.Join(err, fmt.Errorf("wake block IO: remove %s: %w", dir, e))
		}
	}()
	for _, d := range disks {
		for _, limit := range []int{wakeLimit, 0} {
			if err := setThrottle(dir, d.device, limit); err != nil {
				return fmt.Errorf("wake block IO of %s: %w", d.name, err)
			}
		}
	}
	return h.probeBlockIO()
}

// setThrottle writes one line to the limit file of a cgroup; 0 takes the limit
// away. The file must exist: it is never made.
func setThrottle(dir string, id deviceID, limit int) error {
	f, err := os.OpenFile(filepath.Join(dir, "blkio.throttle.write_bps_device"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%d:%d %d", id>>32, id&0xffffffff, limit)
	return errors.Join(err, f.Close())
}

// disks returns the whole physical disks of /proc/diskstats: no partitions, no
// stacked, loop or memory devices.
func (h *Host) disks() ([]disk, error) {
	path := filepath.Join(h.proc, "diskstats")
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read disks: %w", err)
	}
	all, err := parseDiskstats(b)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	return slices.DeleteFunc(all, func(d disk) bool {
		dir := filepath.Join(h.sys, "dev/block", fmt.Sprintf("%d:%d", d.device>>32, d.device&0xffffffff))
		dev := lookDevice(h.sys, d.device)
		return dev.class != classDisk || exists(dir+"/partition") || strings.HasPrefix(d.name, "loop") ||
			strings.HasPrefix(d.name, "ram") || strings.HasPrefix(d.name, "zram")
	}), nil
}

// blkioFile returns the name of the v1 file of bytes that groups are read by.
func (h *Host) blkioFile() string {
	for i := range h.files {
		if h.files[i].kind == kindBlkioBytes {
			return h.files[i].name
		}
	}
	return "blkio.throttle.io_service_bytes"
}

// listsDevice reports whether the root group's file of v1 block IO has a line
// of a device.
func (h *Host) listsDevice(name string) bool {
	b, errno := h.readPath(filepath.Join(h.hierarchies[h.of("blkio")].dir, name))
	if errno != 0 {
		return false
	}
	ds, err := parseBlkio(b, false, nil)
	return err == nil && len(ds) > 0
}
