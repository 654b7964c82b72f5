package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/client"
	"github.com/cimeter/cimeter/internal/display"
	"github.com/cimeter/cimeter/internal/summary"
)

// compareCmd lays two builds side by side.
type compareCmd struct {
	serverFlags `embed:""`
	A           string `arg:"" help:"Key of a build, or what only its key ends with; or median, median:N, last-green, or a branch."`
	B           string `arg:"" optional:"" help:"The build that is compared with it. With one build only, that is B, and A is median:20."`
	JSON        bool   `name:"json" xor:"form" help:"Print all figures as JSON."`
	CSV         bool   `name:"csv" xor:"form" help:"Print all figures as CSV."`
	Markdown    bool   `xor:"form" help:"Print tables for a merge request."`
}

// Help is the end of --help.
func (c *compareCmd) Help() string { return compareHelp }

// usualBuilds is how many builds of a job tell what is usual.
const usualBuilds = 20

// Run prints the comparison.
func (c *compareCmd) Run(e *env) error {
	from, err := c.client(e)
	if err != nil {
		return err
	}
	if c.B == "" {
		c.A, c.B = "median", c.A
	}
	ctx := context.Background()
	of := compared{from}
	var a, b summary.Side
	if _, word, _ := medianWord(c.B); word || c.B == lastGreen {
		if a, err = of.side(ctx, c.A, nil); err == nil {
			b, err = of.side(ctx, c.B, a.Record)
		}
	} else if b, err = of.side(ctx, c.B, nil); err == nil {
		a, err = of.side(ctx, c.A, b.Record)
	} else if errors.Is(err, cimeter.ErrNotFound) { // B may be a branch of A's job
		first := err
		if a, err = of.side(ctx, c.A, nil); err != nil {
			return first
		}
		b, err = of.side(ctx, c.B, a.Record)
	}
	if err != nil {
		return err
	}
	var before []*cimeter.Record
	if !c.JSON && !c.CSV && b.Median == 0 {
		if before, err = of.history(ctx, b.Record, usualBuilds, func(*cimeter.Record) bool { return true }); err != nil {
			return err
		}
	}
	switch {
	case c.JSON:
		return summary.CompareJSON(e.stdout, a, b)
	case c.CSV:
		return summary.CompareCSV(e.stdout, a.Record, b.Record)
	case c.Markdown:
		return summary.CompareMarkdown(e.stdout, a, b, before)
	}
	return summary.CompareText(e.stdout, a, b, before, summary.TextOptions{UTF8: utf8Locale(e.getenv), Width: summary.Columns})
}

// compared finds what is compared.
type compared struct{ from *client.Client }

const (
	lastGreen = "last-green"
	wantSide  = "want a build's key or what only its key ends with, median:20, last-green, or a branch such as main"
)

// medianWord reads median and median:N.
func medianWord(word string) (n int, ok bool, err error) {
	count, ok := strings.CutPrefix(word, "median:")
	if word == "median" {
		return usualBuilds, true, nil
	}
	if !ok {
		return 0, false, nil
	}
	if n, err = strconv.Atoi(count); err != nil || n < 2 || n > 100 {
		return 0, true, fmt.Errorf("%s: want median:2 to median:100: %w", display.Fit(word, 40, "…"), cimeter.ErrInvalid)
	}
	return n, true, nil
}

// side finds what a word means beside a build; nil: only a build is meant.
func (c compared) side(ctx context.Context, word string, beside *cimeter.Record) (summary.Side, error) {
	n, isMedian, err := medianWord(word)
	switch {
	case err != nil:
		return summary.Side{}, err
	case (isMedian || word == lastGreen) && beside == nil:
		return summary.Side{}, fmt.Errorf("%s: want a build beside it: %w", word, cimeter.ErrInvalid)
	case isMedian:
		rs, err := c.history(ctx, beside, n, func(r *cimeter.Record) bool { return r.Result != "canceled" })
		if err != nil {
			return summary.Side{}, err
		}
		if len(rs) == 0 {
			return summary.Side{}, c.none(word, beside)
		}
		return summary.Side{Record: summary.Median(rs), Median: len(rs)}, nil
	case word == lastGreen:
		return c.last(ctx, word, beside, func(r *cimeter.Record) bool { return r.Result == "success" })
	}
	r, err := find(ctx, c.from, word)
	if err == nil || beside == nil || !errors.Is(err, cimeter.ErrNotFound) {
		return summary.Side{Record: r}, err
	}
	return c.last(ctx, word, beside, func(r *cimeter.Record) bool { return r.Ref == word })
}

func (c compared) last(ctx context.Context, word string, beside *cimeter.Record, wanted func(*cimeter.Record) bool) (summary.Side, error) {
	rs, err := c.history(ctx, beside, 1, wanted)
	if err != nil {
		return summary.Side{}, err
	}
	if len(rs) == 0 {
		return summary.Side{}, c.none(word, beside)
	}
	return summary.Side{Record: rs[0]}, nil
}

func (c compared) none(word string, beside *cimeter.Record) error {
	return fmt.Errorf("%s: no build of its job before %s: %s: %w", display.Fit(word, 80, "…"), beside.Key, wantSide, cimeter.ErrNotFound)
}

var errEnough = errors.New("enough")

// history returns the builds of a job that ended before one of them and are
// wanted, the latest first, among the newest that are looked at.
func (c compared) history(ctx context.Context, of *cimeter.Record, limit int, wanted func(*cimeter.Record) bool) ([]*cimeter.Record, error) {
	if of.Project == "" && of.Name == "" {
		return nil, nil
	}
	var rs []*cimeter.Record
	err := each(ctx, c.from, client.Filter{Project: of.Project, Name: of.Name}, mostLooked, func(r *cimeter.Record) error {
		if r.Key == of.Key || r.EndedAt.After(of.EndedAt) || !wanted(r) {
			return nil
		}
		if rs = append(rs, r); len(rs) == limit {
			return errEnough
		}
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return rs, err
}
