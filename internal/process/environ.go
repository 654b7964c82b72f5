package process

import (
	"bytes"
	"slices"
)

// Environ returns the variables named in allow that the process was started
// with (what it sets later does not show). It needs the process to be of our
// user or the capabilities SYS_PTRACE and DAC_READ_SEARCH, and fails with
// [cimeter.ErrUnauthorized] otherwise. A kernel thread has none. A process that
// ended is [cimeter.ErrGone], or has none on older kernels.
//
// Nothing but these variables leaves the function, by its result or an error,
// and the buffer is wiped. What the process says of itself is its own to choose:
// a variable is a claim. Of an environment over 1 MiB only the beginning is
// looked at.
func (fs *FS) Environ(pid int, allow []string) (map[string]string, error) {
	b, err := fs.append(make([]byte, 0, 16<<10), pid, "environ", maxEnviron)
	defer func() { clear(b[:cap(b)]) }()
	if err != nil {
		return nil, err
	}
	if len(b) == maxEnviron { // the last one may be cut
		b = b[:bytes.LastIndexByte(b, 0)+1]
	}
	return parseEnviron(b, allow), nil
}

// parseEnviron picks the allowed variables out of NAME=VALUE strings, each with a
// NUL behind it. Of a name that is there twice the first counts, as for getenv(3).
func parseEnviron(b []byte, allow []string) map[string]string {
	var vars map[string]string
	for len(b) > 0 {
		var entry []byte
		entry, b, _ = bytes.Cut(b, []byte{0})
		name, value, ok := bytes.Cut(entry, []byte("="))
		if !ok || len(name) == 0 {
			continue
		}
		i := slices.IndexFunc(allow, func(a string) bool { return a == string(name) })
		if i < 0 {
			continue
		}
		if _, twice := vars[allow[i]]; twice {
			continue
		}
		if vars == nil {
			vars = make(map[string]string)
		}
		vars[allow[i]] = string(value)
	}
	return vars
}
