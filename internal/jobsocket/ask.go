package jobsocket

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/display"
)

// The words of the exchange.
const (
	greeting = "cimeter-job 1"
	question = "summary"
)

// Ask asks the agent behind the socket at path for the account of the build
// that this process is a part of, once, until ctx ends. The error wraps
// [cimeter.ErrUnavailable] when nobody answers there, and [cimeter.ErrNotFound]
// when the agent knows no such build.
func Ask(ctx context.Context, path string) (*Answer, error) {
	a, err := ask(ctx, path)
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("no answer in time: %w", cimeter.ErrUnavailable)
		}
		return nil, fmt.Errorf("ask %s: %w", display.Fit(path, 200, "…"), err)
	}
	return a, nil
}

func ask(ctx context.Context, path string) (*Answer, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		if op := (*net.OpError)(nil); errors.As(err, &op) { // its text repeats the path
			err = op.Err
		}
		return nil, fmt.Errorf("%v: %w", err, cimeter.ErrUnavailable)
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	r := bufio.NewReaderSize(io.LimitReader(c, maxGreeting+maxAnswer+1), 4<<10)
	line, err := r.ReadString('\n')
	if err != nil && strings.HasPrefix(line, "{") { // it knows already that it will not tell
		return decode([]byte(line))
	}
	if err != nil {
		return nil, fmt.Errorf("no greeting: %w", cimeter.ErrUnavailable)
	}
	nonce, ok := strings.CutPrefix(line, greeting+" ")
	if !ok || len(line) > maxGreeting {
		return nil, fmt.Errorf("greeting %s: want %s: %w", display.Fit(line, 40, "…"), greeting, cimeter.ErrUnsupported)
	}
	if _, err := io.WriteString(c, question+" "+nonce); err != nil {
		return nil, fmt.Errorf("%v: %w", err, cimeter.ErrUnavailable)
	}
	b, err := io.ReadAll(r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%v: %w", err, cimeter.ErrUnavailable)
	case len(b) == 0:
		return nil, fmt.Errorf("the agent ended the connection: %w", cimeter.ErrUnavailable)
	case len(b) > maxAnswer:
		return nil, fmt.Errorf("answer is larger than %d bytes: %w", maxAnswer, cimeter.ErrInvalid)
	}
	return decode(b)
}

// decode reads an answer.
func decode(b []byte) (*Answer, error) {
	var a Answer
	if err := json.Unmarshal(b, &a); err != nil {
		return nil, fmt.Errorf("answer: %s: %w", display.Fit(err.Error(), 200, "…"), cimeter.ErrInvalid)
	}
	switch {
	case a.Problem != "":
		return nil, fmt.Errorf("%s: %w", display.Fit(a.Problem, 200, "…"), cimeter.ErrNotFound)
	case a.Record == nil || a.Record.Key == "":
		return nil, fmt.Errorf("answer without a record: %w", cimeter.ErrInvalid)
	}
	return &a, nil
}
