package process

import "bytes"

// maxName bounds the name of a process, which the kernel cuts to 15 bytes.
const maxName = 64

// Name returns the name of a process, which it may change: at first that of its
// program, cut to 15 bytes. It waits for nothing. The error wraps cimeter.ErrGone
// when there is no such process.
func (fs *FS) Name(pid int) (string, error) {
	b, err := fs.append(nil, pid, "comm", maxName)
	return string(bytes.TrimSuffix(b, []byte("\n"))), err
}
