package testdocker

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// joined are the v1 controllers that metering is about, in the order in which
// a cgroup is made in them here: blkio, whose folders tell of births, last.
var joined = [...]string{"cpu", "cpuacct", "memory", "pids", "blkio"}

// places are the folders of a cgroup in the hierarchies that containers are
// metered in.
func places(path string) ([]string, error) {
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, controller := range joined {
		i := slices.IndexFunc(all, func(h hierarchy) bool { return h.has(controller) })
		if i < 0 {
			continue
		}
		if dir := filepath.Join(all[i].mount, path); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	if len(dirs) > 0 {
		return dirs, nil
	}
	for _, h := range all {
		if h.v2 {
			return []string{filepath.Join(h.mount, path)}, nil
		}
	}
	return nil, errors.New("finding the cgroup hierarchies: neither v1 controllers nor cgroup2 are mounted")
}

// MakeCgroup makes a cgroup as a container's runtime does, with no container
// in it: in every hierarchy that containers are metered in. Where it is there
// it stays.
func MakeCgroup(path string) error {
	dirs, err := places(path)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		// v2: the parent hands its controllers down. A parent with processes of
		// its own cannot; its children have what all have then.
		_ = os.WriteFile(filepath.Join(filepath.Dir(dir), "cgroup.subtree_control"), []byte("+cpu +memory +io +pids"), 0)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making cgroup %s: %w", path, err)
		}
	}
	return nil
}

// CgroupProcs lists the files by which a process joins a cgroup made by
// MakeCgroup: each takes a process id, or 0 for the writer itself.
func CgroupProcs(path string) ([]string, error) {
	dirs, err := places(path)
	for i := range dirs {
		dirs[i] = filepath.Join(dirs[i], "cgroup.procs")
	}
	return dirs, err
}

// DropCgroup removes a cgroup made by MakeCgroup, which must be empty, as a
// runtime does after a container's end.
func DropCgroup(path string) error {
	dirs, err := places(path)
	for _, dir := range dirs {
		err = errors.Join(err, os.Remove(dir))
	}
	if err != nil {
		return fmt.Errorf("removing cgroup %s: %w", path, err)
	}
	return nil
}

// RemoveCgroup kills what is in a cgroup and below it, and removes it all.
func RemoveCgroup(path string) error { return removeCgroup(path) }

// SetCgroup writes value into the first of the files that a cgroup has, v1 or
// v2: the two name the same thing differently.
func SetCgroup(path, value string, files ...string) error {
	file, err := findFile(path, files)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(value), 0); err != nil {
		return fmt.Errorf("setting %s to %s: %w", file, value, err)
	}
	return nil
}

// CgroupNumber reads the first of the files that a cgroup has.
func CgroupNumber(path string, files ...string) (uint64, error) {
	file, err := findFile(path, files)
	if err != nil {
		return 0, err
	}
	return readUint(file)
}

func findFile(path string, files []string) (string, error) {
	dirs, err := places(path)
	if err != nil {
		return "", err
	}
	for _, name := range files {
		for _, dir := range dirs {
			file := filepath.Join(dir, name)
			if _, err := os.Stat(file); err == nil {
				return file, nil
			}
		}
	}
	return "", fmt.Errorf("cgroup %s has none of %q", path, files)
}
