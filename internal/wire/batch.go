package wire

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/cimeter/cimeter"
)

// EncodeBatch packs lines, each one record's JSON without a line break, for a
// body with the Content-Encoding that it returns too.
func EncodeBatch(lines [][]byte) (body []byte, encoding string, err error) {
	for _, l := range lines {
		if len(l) > MaxLineBytes || bytes.ContainsAny(l, "\r\n") {
			return nil, "", fmt.Errorf("encode batch: line of %d bytes: want one line of at most %d: %w", len(l), MaxLineBytes, cimeter.ErrInvalid)
		}
	}
	var packed bytes.Buffer
	z, err := zstd.NewWriter(&packed, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, "", fmt.Errorf("encode batch: %w", err)
	}
	for _, l := range lines {
		// A write into memory fails at Close if at all.
		z.Write(l)
		z.Write([]byte{'\n'})
	}
	if err := z.Close(); err != nil {
		return nil, "", fmt.Errorf("encode batch: %w", err)
	}
	return packed.Bytes(), "zstd", nil
}

// Item is one line of a batch: a record, or the reason why it is none.
type Item struct {
	Record *cimeter.Record // nil when Err is set
	Key    string          // as far as the line tells it
	Err    error
}

// DecodeBatch reads a batch of that Content-Encoding. Lines that hold no record
// of ours are items with an error, and the others stand. The batch as a whole
// has an error that wraps [ErrTooLarge] when it is over a bound,
// [cimeter.ErrUnsupported] for an encoding that is not known, and
// [cimeter.ErrInvalid] when it cannot be unpacked; an error of body is wrapped
// as it is.
func DecodeBatch(body io.Reader, encoding string) ([]Item, error) {
	in := &counted{r: body, bound: MaxBodyBytes}
	unpacked, done, err := unpack(in, encoding)
	if err != nil {
		return nil, batchError(in, err)
	}
	defer done()
	lines := bufio.NewReaderSize(&bounded{r: unpacked, in: in}, 64<<10)
	var items []Item
	var line []byte
	for n := 1; ; n++ {
		var long bool
		line, long, err = readLine(lines, line[:0])
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, batchError(in, err)
		}
		end := err != nil
		if len(bytes.TrimSpace(line)) > 0 || long {
			if len(items) == MaxBatchRecords {
				return nil, fmt.Errorf("decode batch: want at most %d records: %w", MaxBatchRecords, ErrTooLarge)
			}
			items = append(items, item(line, long, n))
		}
		if end {
			return items, nil
		}
	}
}

func item(line []byte, long bool, n int) Item {
	if long {
		return Item{Err: fmt.Errorf("line %d: want at most %d bytes: %w", n, MaxLineBytes, ErrTooLarge)}
	}
	r, err := DecodeRecord(line)
	if err != nil {
		return Item{Key: keyOf(line), Err: fmt.Errorf("line %d: %w", n, err)}
	}
	return Item{Record: r, Key: r.Key}
}

// readLine appends the next line to b. Of one that is too long it keeps
// nothing. io.EOF comes with the last line.
func readLine(r *bufio.Reader, b []byte) (_ []byte, long bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if long = long || len(b)+len(part) > MaxLineBytes+1; long {
			b = b[:0]
		} else {
			b = append(b, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		return bytes.TrimSuffix(b, []byte("\n")), long, err
	}
}

func unpack(r io.Reader, encoding string) (_ io.Reader, done func(), err error) {
	switch encoding {
	case "", "identity":
		return r, func() {}, nil
	case "gzip":
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, nil, err
		}
		return z, func() { z.Close() }, nil
	case "zstd":
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(MaxBatchBytes+maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return nil, nil, fmt.Errorf("content encoding %.32q: want zstd, gzip or none: %w", encoding, cimeter.ErrUnsupported)
}

// batchError gives an error of reading a batch its code. What the transport
// itself says (a body cut off, a deadline) is none of the form's.
func batchError(in *counted, err error) error {
	switch {
	case in.err != nil:
		return fmt.Errorf("read batch: %w", in.err)
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("decode batch: %v: want a window of at most %d bytes: %w", err, maxWindow, ErrTooLarge)
	case errors.Is(err, ErrTooLarge), errors.Is(err, cimeter.ErrUnsupported):
		return fmt.Errorf("decode batch: %w", err)
	}
	return fmt.Errorf("decode batch: %v: %w", err, cimeter.ErrInvalid)
}

// counted counts and bounds what is read of a body, and keeps its error apart
// from those of unpacking.
type counted struct {
	r     io.Reader
	n     int64
	bound int64
	err   error
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n += int64(n)
	if c.n > c.bound {
		err = fmt.Errorf("body: want at most %d bytes: %w", c.bound, ErrTooLarge)
	}
	if err != nil && err != io.EOF {
		c.err = err
		return 0, err
	}
	return n, err
}

// bounded bounds what a body unpacks to, by itself and against what was sent.
type bounded struct {
	r  io.Reader
	in *counted
	n  int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.n += int64(n)
	switch {
	case b.n > MaxBatchBytes:
		return 0, fmt.Errorf("body unpacks to more than %d bytes: %w", MaxBatchBytes, ErrTooLarge)
	case b.n > freeBytes && b.n > maxRatio*b.in.n:
		return 0, fmt.Errorf("body unpacks to more than %d times its size: %w", maxRatio, ErrTooLarge)
	}
	return n, err
}
