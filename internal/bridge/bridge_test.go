package bridge_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cimeter/cimeter/internal/bridge"
	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/scrape"
	"github.com/cimeter/cimeter/internal/series"
	"github.com/cimeter/cimeter/internal/tally"
)

type page func(ctx context.Context) (scrape.Page, error)

func (p page) Scrape(ctx context.Context) (scrape.Page, error) { return p(ctx) }

func gauge(name string, v float64) series.Family {
	return series.Family{Name: name, Kind: series.Gauge, Points: []series.Point{{Value: v}}}
}

// A source that hangs or fails holds up no other, and has no metrics meanwhile.
func TestBridge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := tally.New(tally.Options{})
		good, bad, n := 0, false, 0
		b := bridge.New([]bridge.Source{
			{Name: "hangs", Page: page(func(ctx context.Context) (scrape.Page, error) {
				<-ctx.Done()
				return scrape.Page{}, ctx.Err()
			})},
			{Name: "good", Serve: true, Interval: 10 * time.Second, Page: page(func(context.Context) (scrape.Page, error) {
				good++
				return scrape.Page{Families: []series.Family{gauge("a", float64(good)), gauge("both", 1)}, Skipped: []series.Drop{{Reason: "syntax", Points: 2}}}, nil
			})},
			{Name: "fails", Interval: 10 * time.Second, Page: page(func(context.Context) (scrape.Page, error) {
				if n++; bad {
					return scrape.Page{}, errors.New("away")
				}
				other := gauge("a", 9)
				other.Kind = series.Counter
				return scrape.Page{Families: []series.Family{gauge("b", 1), gauge("both", 2), other}}, nil
			})},
		}, table, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.Run(ctx) }()
		names := func() string {
			s := ""
			for _, f := range b.Families() {
				s += f.Name + string(rune('0'+len(f.Points)))
			}
			return s
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := names(); got != "a1both2b1" {
			t.Errorf("families %s, want a1both2b1", got)
		}
		if served := b.Served(); len(served) != 2 || served[1].Name != "both" || len(served[1].Points) != 1 {
			t.Errorf("served %v, want those of good", served)
		}
		bad = true
		time.Sleep(100 * time.Second)
		synctest.Wait()
		if got := names(); got != "a1both1" || good != 11 || n != 11 {
			t.Errorf("families %s after %d and %d reads, want a1both1 after 11", got, good, n)
		}
		for name, want := range map[string]float64{"good": 1, "fails": 0, "hangs": 0} {
			if v, ok := table.Value(catalog.SourceUp, name).Get(); !ok || v != want {
				t.Errorf("%s is up: %v, want %v", name, v, want)
			}
		}
		if v, _ := table.Value(catalog.SourceSkipped, "good", "syntax").Get(); v != 22 {
			t.Errorf("%v skipped, want 22", v)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
