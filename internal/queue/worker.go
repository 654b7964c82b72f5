package queue

import (
	"slices"
	"time"

	"github.com/cimeter/cimeter"
)

// workerEntry is what is known of one worker.
type workerEntry struct {
	told []told[cimeter.Worker]
}

// worker is the worker as everything told makes it, by our clock.
func (e *workerEntry) worker(ahead time.Duration) (w cimeter.Worker) {
	for i := len(e.told) - 1; i >= 0; i-- {
		v := e.told[i].value
		if e.told[i].raw && !v.ContactedAt.IsZero() {
			v.ContactedAt = v.ContactedAt.Add(-ahead)
		}
		fillWorker(&w, &v)
	}
	return w
}

// fillWorker takes from src what dst does not tell.
func fillWorker(dst, src *cimeter.Worker) (took bool) {
	for _, f := range [...]struct{ dst, src *string }{
		{&dst.CI, &src.CI}, {&dst.Server, &src.Server}, {&dst.ID, &src.ID}, {&dst.Name, &src.Name}, {&dst.Machine, &src.Machine},
		{&dst.Runner.ID, &src.Runner.ID}, {&dst.Runner.ShortToken, &src.Runner.ShortToken}, {&dst.Runner.Name, &src.Runner.Name},
		{&dst.Version, &src.Version}, {&dst.Platform, &src.Platform}, {(*string)(&dst.State), (*string)(&src.State)},
	} {
		if *f.dst == "" && *f.src != "" {
			*f.dst, took = *f.src, true
		}
	}
	if dst.Tags == nil && src.Tags != nil {
		dst.Tags, took = src.Tags, true
	}
	if dst.Builds == nil && src.Builds != nil {
		dst.Builds, took = src.Builds, true
	}
	for _, f := range [...]struct{ dst, src *cimeter.Opt[int] }{{&dst.Slots, &src.Slots}, {&dst.Running, &src.Running}} {
		if !f.dst.Known && f.src.Known {
			*f.dst, took = *f.src, true
		}
	}
	if dst.ContactedAt.IsZero() && !src.ContactedAt.IsZero() {
		dst.ContactedAt, took = src.ContactedAt, true
	}
	return took
}

// maxWorkerBuilds bounds the builds that a worker is told to have.
const maxWorkerBuilds = 1000

func tidyWorker(w *cimeter.Worker) bool {
	if w.ID == "" || len(w.ID) > maxKey {
		return false
	}
	for _, s := range [...]*string{
		&w.CI, &w.Server, &w.Name, &w.Machine, &w.Runner.ID, &w.Runner.ShortToken, &w.Runner.Name, &w.Version, &w.Platform,
	} {
		*s = cut(*s)
	}
	w.Tags, w.ContactedAt = tidyTags(w.Tags), tidyTime(w.ContactedAt)
	if len(w.Builds) > maxWorkerBuilds {
		w.Builds = w.Builds[:maxWorkerBuilds]
	}
	for _, n := range [...]*cimeter.Opt[int]{&w.Slots, &w.Running} {
		if n.Value < 0 || n.Value > 1e6 {
			*n = cimeter.Opt[int]{}
		}
	}
	return true
}

// fits reports whether a worker has all the tags that a build asks for. A worker's
// name=* stands for any value (Woodpecker).
func fits(w *cimeter.Worker, tags []string) bool {
	for _, t := range tags {
		if slices.Contains(w.Tags, t) {
			continue
		}
		if !slices.ContainsFunc(w.Tags, func(has string) bool { return matches(has, t, w.CI) }) {
			return false
		}
	}
	return true
}

// full reports whether a worker can take no build now, where that is known.
func full(w *cimeter.Worker) cimeter.Opt[bool] {
	switch {
	case w.State == cimeter.WorkerDraining:
		return cimeter.Some(true)
	case w.Slots.Known && w.Running.Known:
		return cimeter.Some(w.Running.Value >= w.Slots.Value)
	case w.State == cimeter.WorkerIdle:
		return cimeter.Some(false)
	case w.State == cimeter.WorkerBusy && w.Slots.Known && w.Slots.Value == 1:
		return cimeter.Some(true)
	}
	return cimeter.Opt[bool]{}
}
