package queue

import (
	"strings"
	"unicode"

	"github.com/cimeter/cimeter"
)

// pool finds the workers that may take a build: thousands of builds, each with tags
// of its own, wait for a thousand workers.
type pool struct {
	workers []cimeter.Worker
	every   bool             // there are no others
	online  []int            // places in workers
	tagged  map[string][]int // those of online that have a tag, or name=*
	folded  map[string][]int // the same where labels are the same in any case
}

func newPool(workers []cimeter.Worker, every bool) *pool {
	p := &pool{workers: workers, every: every, tagged: map[string][]int{}, folded: map[string][]int{}}
	for i := range workers {
		w := &workers[i]
		if w.State == cimeter.WorkerOffline || w.State == cimeter.WorkerDraining {
			continue
		}
		p.online = append(p.online, i)
		for _, t := range w.Tags {
			p.tagged[t] = append(p.tagged[t], i)
			if w.CI == "github" {
				p.folded[fold(t)] = append(p.folded[fold(t)], i)
			}
		}
	}
	return p
}

// fold is the same for texts that strings.EqualFold takes for one.
func fold(s string) string {
	return strings.Map(func(r rune) rune {
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, s)
}

// fitting calls yield with each worker that has all tags, some more than once, until
// it returns false.
func (p *pool) fitting(tags []string, yield func(*cimeter.Worker) bool) {
	if len(tags) == 0 {
		p.among(p.online, tags, yield)
		return
	}
	// Who has the rarest tag.
	var least [][]int
	fewest := -1
	for _, t := range tags {
		lists, n := p.with(t)
		if fewest < 0 || n < fewest {
			least, fewest = lists, n
		}
	}
	for _, list := range least {
		if !p.among(list, tags, yield) {
			return
		}
	}
}

func (p *pool) among(list []int, tags []string, yield func(*cimeter.Worker) bool) bool {
	for _, i := range list {
		if w := &p.workers[i]; fits(w, tags) && !yield(w) {
			return false
		}
	}
	return true
}

// with returns who may have what a build asks for as t, and how many they are.
func (p *pool) with(t string) (lists [][]int, n int) {
	add := func(list []int) {
		if len(list) > 0 {
			lists = append(lists, list)
			n += len(list)
		}
	}
	add(p.tagged[t])
	for i := range len(t) {
		if t[i] == '=' {
			add(p.tagged[t[:i]+"=*"])
		}
	}
	if len(p.folded) > 0 {
		add(p.folded[fold(t)])
	}
	return lists, n
}
