package watch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Within looks into the container's folder at path from now on: containers in
// it are told as Born and Removed, those that are there already at once, at each
// call. What is nested deeper, in those, is theirs and not looked at. It ends with
// the folder.
func (w *Watcher) Within(path string, fn func(Event)) {
	if _, ok := w.within[path]; !ok {
		w.within[path] = 0
	}
	w.coverWithin(path, path, fn)
}

// outer returns the folder of the container that a watched folder is in, where
// there is one.
func (w *Watcher) outer(folder string) (top string, ok bool) {
	if len(w.within) == 0 {
		return "", false
	}
	for top = folder; top != "/" && top != "."; top = filepath.Dir(top) {
		if _, ok := w.within[top]; ok {
			return top, true
		}
	}
	return "", false
}

// left forgets a folder in a container that is no more, and the container with
// its own.
func (w *Watcher) left(folder string) {
	if _, ok := w.within[folder]; ok {
		delete(w.within, folder)
		return
	}
	if top, ok := w.outer(folder); ok {
		w.within[top]--
	}
}

// coverWithin is cover for a folder in the container at top. What is over a bound
// is not watched and not told: it is in the container's own counters all the same.
func (w *Watcher) coverWithin(top, path string, fn func(Event)) {
	if _, ok := w.known[path]; !ok {
		if w.within[top] >= maxFoldersWithin || strings.Count(path[len(top):], "/") > maxWithin || len(w.folders) >= w.opts.MaxFolders {
			return
		}
		wd, err := unix.InotifyAddWatch(w.inotify, filepath.Join(w.opts.Root, path), unix.IN_CREATE|unix.IN_DELETE|unix.IN_ONLYDIR)
		if err != nil {
			if path == top && errors.Is(err, unix.ENOENT) {
				delete(w.within, top) // removed meanwhile
			}
			return
		}
		w.folders[int32(wd)] = path
		w.known[path] = int32(wd)
		w.within[top]++
	}
	entries, err := os.ReadDir(filepath.Join(w.opts.Root, path))
	if err != nil {
		return // removed in between
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
		w.coverWithin(top, child, fn)
	}
}
