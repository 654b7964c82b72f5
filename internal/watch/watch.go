// Package watch tells at once when the folder of a container's cgroup is made
// or removed and when a process ends, without polling.
//
// It owns one epoll instance and behind it one inotify instance over the
// folders of a cgroup hierarchy, the pidfds handed to it, and an eventfd by
// which other goroutines wake the waiting one. It reads no counters and looks
// into a container's own folder only where it is asked to ([Watcher.Within]):
// what is nested in a container belongs to it. It does not log.
//
// The entry point is [New], the heart [Watcher.Wait]. All methods but Wake
// belong to one goroutine.
package watch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cimeter/cimeter"
)

// Options say what to watch.
type Options struct {
	// Root is the top folder of the hierarchy whose folders tell of births.
	Root string
	// IsContainer reports whether the folder at that path is a container's, or
	// another's that is metered as one is.
	IsContainer func(path string) bool
	// MaxFolders bounds the watched folders that are not containers'; 0 means
	// 8192, the usual fs.inotify.max_user_watches of a small machine.
	MaxFolders int
}

// maxDepth bounds how deep a container's folder may lie: twice the depth of a
// pod under systemd in a user's session. maxWithin bounds how deep what is nested
// in a container may lie below its folder, and maxFoldersWithin how many folders
// of one container are watched for it: those who run in it make them.
const (
	maxDepth         = 16
	maxWithin        = 8
	maxFoldersWithin = 64
)

// Kind is the kind of an Event.
type Kind uint8

// The kinds of events.
const (
	Born     Kind = iota + 1 // Path: a container's folder was made, or was there at a scan
	Removed                  // Path: a container's folder was removed
	Exited                   // Token: the process of a pidfd ended
	Changed                  // Token: the cgroup.events file of a container changed
	Overflow                 // events were lost: Scan
)

// Event is one thing that happened.
type Event struct {
	Kind  Kind
	Path  string // relative to Root, with a leading slash
	Token uint64 // as it was given to AddPidfd or AddFile
}

// Watcher watches. Make it with New.
type Watcher struct {
	opts    Options
	epoll   int
	inotify int
	wakeMu  sync.Mutex
	wake    int              // under wakeMu once others know the watcher; -1: closed
	folders map[int32]string // watch descriptor to path
	known   map[string]int32 // path to watch descriptor
	files   map[int32]uint64 // watch descriptor of a cgroup.events file to token
	missed  uint64           // folders that could not be watched
	within  map[string]int   // folder of a container that is looked into, to folders watched in it
	buf     [16 << 10]byte
	ready   [64]unix.EpollEvent
}

const (
	tokenInotify = ^uint64(0)
	tokenWake    = ^uint64(0) - 1
)

// New returns a watcher over all folders that exist; Scan tells which of them
// are containers'. It fails when the kernel gives it no descriptors or Root
// cannot be watched.
func New(o Options) (*Watcher, error) {
	if o.MaxFolders == 0 {
		o.MaxFolders = 8192
	}
	w := &Watcher{
		opts: o, epoll: -1, inotify: -1, wake: -1,
		folders: make(map[int32]string), known: make(map[string]int32), files: make(map[int32]uint64),
		within: make(map[string]int),
	}
	if err := w.open(); err != nil {
		w.Close()
		return nil, fmt.Errorf("watch %s: %w", o.Root, err)
	}
	return w, nil
}

func (w *Watcher) open() (err error) {
	if w.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	if w.inotify, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		return fmt.Errorf("inotify_init1 (fs.inotify.max_user_instances): %w", err)
	}
	if w.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	if err := w.register(w.inotify, tokenInotify); err != nil {
		return err
	}
	if err := w.register(w.wake, tokenWake); err != nil {
		return err
	}
	if _, err := os.Stat(w.opts.Root); err != nil {
		return err
	}
	w.cover("/", 0, func(Event) {})
	if len(w.folders) == 0 {
		return errors.New("inotify_add_watch (fs.inotify.max_user_watches): no folder can be watched")
	}
	return nil
}

// Close gives all descriptors back. Pidfds belong to their owners.
func (w *Watcher) Close() {
	w.wakeMu.Lock()
	defer w.wakeMu.Unlock()
	for _, fd := range []int{w.inotify, w.wake, w.epoll} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	w.inotify, w.wake, w.epoll = -1, -1, -1
}

func (w *Watcher) register(fd int, token uint64) error {
	e := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(token), Pad: int32(token >> 32)}
	if err := unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &e); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// AddPidfd asks for an Exited event with token when the process ends.
func (w *Watcher) AddPidfd(fd int, token uint64) error { return w.register(fd, token) }

// RemovePidfd ends what AddPidfd began. Call it before fd is closed.
func (w *Watcher) RemovePidfd(fd int) {
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_DEL, fd, nil) // not registered: nothing to end
}

// AddFile asks for a Changed event with token whenever the kernel notes a
// change of a cgroup.events file. The watch ends by itself with the file.
func (w *Watcher) AddFile(path string, token uint64) error {
	wd, err := unix.InotifyAddWatch(w.inotify, path, unix.IN_MODIFY)
	if err != nil {
		return fmt.Errorf("watch %s: %w", path, err)
	}
	w.files[int32(wd)] = token
	return nil
}

// Wake makes a waiting Wait return. Any goroutine may call it, beside and after
// Close, too: the number of the descriptor may be another file's then.
func (w *Watcher) Wake() {
	w.wakeMu.Lock()
	defer w.wakeMu.Unlock()
	if w.wake < 0 {
		return
	}
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(w.wake, one[:]) // a full counter wakes as well
}

// Folders returns how many folders are watched and how many could not be.
func (w *Watcher) Folders() (watched int, missed uint64) { return len(w.folders), w.missed }

// Wait waits at most d (rounded up to a millisecond; 0 only looks) and calls fn
// for what happened. fn may call every method but Wait.
func (w *Watcher) Wait(d time.Duration, fn func(Event)) error {
	ms := int((d + time.Millisecond - 1) / time.Millisecond)
	n, err := unix.EpollWait(w.epoll, w.ready[:], ms)
	if err == unix.EINTR {
		return nil
	}
	if err != nil {
		return fmt.Errorf("epoll_wait: %w", err)
	}
	for i := range n {
		e := &w.ready[i]
		switch token := uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32; token {
		case tokenInotify:
			if err := w.read(fn); err != nil {
				return err
			}
		case tokenWake:
			var b [8]byte
			_, _ = unix.Read(w.wake, b[:])
		default:
			fn(Event{Kind: Exited, Token: token})
		}
	}
	return nil
}

// read takes what inotify has.
func (w *Watcher) read(fn func(Event)) error {
	for {
		n, err := unix.Read(w.inotify, w.buf[:])
		if err == unix.EAGAIN || err == unix.EINTR {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read inotify: %w", err)
		}
		w.decode(w.buf[:n], fn)
		if n < len(w.buf)/2 {
			return nil
		}
	}
}

// decode takes struct inotify_event after struct inotify_event: wd int32, mask,
// cookie, len uint32, then len bytes of name padded with NUL (inotify(7)).
func (w *Watcher) decode(b []byte, fn func(Event)) {
	const head = int(unsafe.Sizeof(unix.InotifyEvent{}))
	for len(b) >= head {
		wd := int32(binary.NativeEndian.Uint32(b))
		mask := binary.NativeEndian.Uint32(b[4:])
		size := int(binary.NativeEndian.Uint32(b[12:]))
		if size > len(b)-head {
			return
		}
		name := b[head : head+size]
		if i := bytes.IndexByte(name, 0); i >= 0 {
			name = name[:i]
		}
		b = b[head+size:]
		w.happened(wd, mask, string(name), fn)
	}
}

func (w *Watcher) happened(wd int32, mask uint32, name string, fn func(Event)) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		fn(Event{Kind: Overflow})
		return
	}
	if token, ok := w.files[wd]; ok {
		if mask&unix.IN_IGNORED != 0 {
			delete(w.files, wd)
			return
		}
		fn(Event{Kind: Changed, Token: token})
		return
	}
	folder, ok := w.folders[wd]
	if !ok {
		return
	}
	if mask&unix.IN_IGNORED != 0 {
		delete(w.folders, wd)
		if w.known[folder] == wd {
			delete(w.known, folder)
		}
		w.left(folder)
		return
	}
	if mask&unix.IN_ISDIR == 0 {
		return
	}
	path := filepath.Join(folder, name)
	container := w.opts.IsContainer(path)
	switch {
	case mask&unix.IN_CREATE != 0 && container:
		fn(Event{Kind: Born, Path: path})
	case mask&unix.IN_CREATE != 0:
		if top, ok := w.outer(folder); ok {
			w.coverWithin(top, path, fn)
			return
		}
		w.cover(path, depth(path), fn)
	case mask&unix.IN_DELETE != 0 && container:
		fn(Event{Kind: Removed, Path: path})
	}
}

func depth(path string) int { return bytes.Count([]byte(path), []byte{'/'}) }

// cover watches the folder at path and those below it, and tells of the
// containers' folders that are there already: the watch comes first, so that
// none is missed in between.
func (w *Watcher) cover(path string, deep int, fn func(Event)) {
	if !w.add(path, deep) {
		return
	}
	w.walk(path, deep, fn)
}

func (w *Watcher) add(path string, deep int) bool {
	if _, ok := w.known[path]; ok {
		return true
	}
	if deep > maxDepth {
		w.missed++
		return false
	}
	if len(w.folders) >= w.opts.MaxFolders {
		w.missed++
		return true // not watched, but walked: Scan finds its containers
	}
	wd, err := unix.InotifyAddWatch(w.inotify, filepath.Join(w.opts.Root, path), unix.IN_CREATE|unix.IN_DELETE|unix.IN_ONLYDIR)
	if err != nil {
		if !errors.Is(err, unix.ENOENT) {
			w.missed++
		}
		// It can be walked all the same: its containers are found by Scan.
		return !errors.Is(err, unix.ENOENT)
	}
	w.folders[int32(wd)] = path
	w.known[path] = int32(wd)
	return true
}

func (w *Watcher) walk(path string, deep int, fn func(Event)) {
	entries, err := os.ReadDir(filepath.Join(w.opts.Root, path))
	if err != nil {
		return // removed in between: its own event tells
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		child := filepath.Join(path, e.Name())
		if w.opts.IsContainer(child) {
			fn(Event{Kind: Born, Path: child})
			continue
		}
		w.cover(child, deep+1, fn)
	}
}

// Scan tells of every container's folder that exists, as Born, and watches
// folders that are new. It is for the start, and after an Overflow.
func (w *Watcher) Scan(fn func(Event)) error {
	if _, err := os.Stat(w.opts.Root); err != nil {
		return fmt.Errorf("scan %s: %w: %w", w.opts.Root, err, cimeter.ErrUnavailable)
	}
	w.cover("/", 0, fn)
	for top := range w.within {
		w.coverWithin(top, top, fn)
	}
	return nil
}
