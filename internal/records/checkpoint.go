package records

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cimeter/cimeter"
)

// A checkpoint's file is named by the hash of its key. It holds
//
//	crc32c 1a2b3c4d
//	gitlab/gitlab.example.com/4242
//	...opaque bytes...
//
// with the CRC-32C of all that follows the first line.
const (
	checkpointFolder   = "checkpoints"
	checkpointSuffix   = ".checkpoint"
	checkpointMagic    = "crc32c "
	MaxCheckpointBytes = 1 << 20 // of one running build's state
)

// Checkpoint keeps b as the state of the running build key, in place of what
// was kept before, durably or not at all. The error wraps [cimeter.ErrInvalid]
// for an empty key, one with a line break, or more than MaxCheckpointBytes.
func (d *Dir) Checkpoint(key string, b []byte) error {
	if key == "" || strings.ContainsAny(key, "\r\n") || len(key)+len(b) > MaxCheckpointBytes {
		return fmt.Errorf("checkpoint %q of %d bytes: want a key of one line and at most %d bytes: %w", key, len(b), MaxCheckpointBytes, cimeter.ErrInvalid)
	}
	body := checkpointBody(key, b)
	file := fmt.Appendf(make([]byte, 0, len(body)+len(checkpointMagic)+9), "%s%s\n%s", checkpointMagic, crc(body), body)
	d.check.Lock()
	defer d.check.Unlock()
	if _, err := d.writeFile(filepath.Join(d.o.Dir, checkpointFolder), checkpointName(key), file); err != nil {
		return fmt.Errorf("checkpoint %s: %w", key, err)
	}
	return nil
}

func checkpointBody(key string, b []byte) []byte {
	body := make([]byte, 0, len(key)+1+len(b))
	body = append(body, key...)
	body = append(body, '\n')
	return append(body, b...)
}

func checkpointName(key string) string { return fmt.Sprintf("%x%s", hashKey(key), checkpointSuffix) }

// DropCheckpoint removes the state of a build; that there is none is no error.
func (d *Dir) DropCheckpoint(key string) error {
	d.check.Lock()
	defer d.check.Unlock()
	err := os.Remove(filepath.Join(d.o.Dir, checkpointFolder, checkpointName(key)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("drop checkpoint %s: %w", key, err)
	}
	return nil
}

// Checkpoints calls fn with every checkpoint, in no order, and stops at the
// first error of fn, which it returns. b is the caller's. A damaged file is
// removed and counted. The checkpoint of a build whose record is there (the
// process died between the two) is removed: the record is the truth.
func (d *Dir) Checkpoints(fn func(key string, b []byte) error) error {
	folder := filepath.Join(d.o.Dir, checkpointFolder)
	list, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("read checkpoints: %w", err)
	}
	for _, file := range list {
		if !strings.HasSuffix(file.Name(), checkpointSuffix) || !file.Type().IsRegular() {
			continue
		}
		path := filepath.Join(folder, file.Name())
		b, err := readBounded(path, MaxCheckpointBytes+1024)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("read checkpoints: %w", err)
		}
		key, state, ok := parseCheckpoint(b)
		if !ok || checkpointName(key) != file.Name() {
			d.count(func(s *Stats) { s.CheckpointsCorrupt++ })
			os.Remove(path)
			continue
		}
		if _, finished := d.find(hashKey(key)); finished {
			os.Remove(path)
			continue
		}
		if err := fn(key, state); err != nil {
			return err
		}
	}
	return nil
}

func readBounded(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, limit))
}

// parseCheckpoint reads a checkpoint's file, or says that it is damaged.
func parseCheckpoint(file []byte) (key string, state []byte, ok bool) {
	head, body, ok := bytes.Cut(file, []byte("\n"))
	if !ok || string(head) != checkpointMagic+crc(body) {
		return "", nil, false
	}
	k, state, ok := bytes.Cut(body, []byte("\n"))
	if !ok || len(k) == 0 {
		return "", nil, false
	}
	return string(k), state, true
}
