package process

import (
	"bytes"
	"os"
	"strconv"
)

// AppendBelow appends process root and its descendants to dst, up to most in all. The
// kernel lists children by the thread that made them; what has lost its parent is not
// found, nor what ends meanwhile.
func (fs *FS) AppendBelow(dst []int, root, most int) []int {
	first, end := len(dst), len(dst)+most
	for dst = append(dst, root); first < len(dst) && len(dst) < end; first++ {
		threads, err := os.ReadDir(fs.proc + "/" + strconv.Itoa(dst[first]) + "/task")
		if err != nil {
			continue // it has ended
		}
		for _, t := range threads {
			b, err := fs.append(nil, dst[first], "task/"+t.Name()+"/children", maxChildren)
			if err != nil {
				continue
			}
			if len(b) == maxChildren {
				b = b[:bytes.LastIndexByte(b, ' ')+1] // the last number may be cut
			}
			for len(b) > 0 && len(dst) < end {
				var f []byte
				f, b = nextField(b)
				if pid := number(f); pid > 0 {
					dst = append(dst, pid)
				}
			}
		}
	}
	return dst
}

// maxChildren bounds what is read of one list of children.
const maxChildren = 4 << 10
