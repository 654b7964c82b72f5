package web

import (
	"fmt"
	"strings"

	"github.com/cimeter/cimeter"
)

// Thresholds of what is said to have held a build back, beside its verdicts.
const (
	nearLimit     = 0.90 // of the memory limit: what the next build exceeds by chance
	anonShare     = 0.50 // of the limit: below it the peak was page cache, which the kernel takes back
	ioShare       = 0.10 // of a stage's time in which some task waited for disk
	memoryShare   = 0.05 // the same for memory: reclaim is felt sooner
	leastWait     = 1.0  // seconds: shorter waits are nothing to act on
	longQueue     = 60.0 // seconds
	queueOfWall   = 0.50 // of the build's own time
	lowCoverage   = 0.90 // below it much of the machine's time is not explained
	throttleShare = 0.05 // of CFS periods
)

// finding is what held a build back: what it was, its evidence, and the one
// change to try.
type finding struct {
	Kind     string // oom, throttled ...
	Title    string
	Stage    string // shown
	URL      string // its stage on the time axis
	Evidence string
	Try      string
	Bad      bool
	Held     string // as the answer's end: by its CPU limit of 2 cores
}

// findings are of the record's verdicts first, worst first, then of what else
// its numbers show.
func findings(r *cimeter.Record, zoom func(stage string) string) []finding {
	var fs []finding
	add := func(f finding, stage string) {
		if stage != "" {
			f.Stage, f.URL = name(stage), zoom(stage)
		}
		fs = append(fs, f)
	}
	for _, rank := range []string{"oom", "throttled", ""} {
		for _, v := range r.Verdicts {
			if v.Kind == rank || rank == "" && v.Kind != "oom" && v.Kind != "throttled" {
				add(verdictFinding(r, v), v.Stage)
			}
		}
	}
	for i := range r.Stages {
		s := &r.Stages[i]
		if f, ok := nearMemory(r, s); ok {
			add(f, s.Name)
		}
		fs = append(fs, waits(s, zoom)...)
	}
	row := RowOf(r)
	if q := row.Queue(); q.Value >= longQueue && q.Value >= queueOfWall*row.WallSeconds {
		add(finding{Kind: "queue", Title: "Waited long for a runner", Evidence: fmt.Sprintf("queued %s for %s of work", seconds(q.Value), seconds(row.WallSeconds)),
			Try: "Add a runner or a slot for its tags, or let it start later.", Held: "by waiting " + seconds(q.Value) + " for a runner"}, "")
	}
	const most = 8 // more cards are not read
	return fs[:min(len(fs), most)]
}

func verdictFinding(r *cimeter.Record, v cimeter.Verdict) finding {
	f := finding{Kind: v.Kind, Evidence: title(v.Evidence)}
	it := "it"
	if v.Stage != "" {
		it = name(v.Stage)
	}
	switch v.Kind {
	case "oom":
		f.Title, f.Bad = "Out of memory", true
		f.Try = "Give " + it + " more memory, or let it run fewer jobs at once."
		f.Held = "by its memory limit: a process was killed"
		if l := r.Limits; l != nil && l.MemoryBytes.Known {
			f.Held = "by its memory limit of " + amount(float64(l.MemoryBytes.Value)) + ": a process was killed"
		}
	case "throttled":
		f.Title = "Held back by its CPU limit"
		f.Held = "by its CPU limit"
		f.Try = "Give it more cores, or let it run fewer jobs at once."
		if l := r.Limits; l != nil && l.CPUCores.Known {
			f.Held += " of " + cores(l.CPUCores.Value)
			f.Try = "Give it " + cores(l.CPUCores.Value+1) + ", or let it run fewer jobs at once."
		}
		if s := stageNamed(r, v.Stage); s != nil {
			if t := s.Usage.CPUThrottledSeconds; t.Known {
				f.Held += ": throttled for " + seconds(t.Value)
			}
		}
	case "disputed":
		f.Title = "More claimed to be this build"
		f.Try = "Look for what else carries this build's labels on the machine."
	default:
		f.Title = strings.ToUpper(name(v.Kind)[:min(1, len(name(v.Kind)))]) + name(v.Kind)[min(1, len(name(v.Kind))):]
	}
	return f
}

func cores(n float64) string {
	if n == 1 {
		return "1 core"
	}
	return short(n) + " cores"
}

func stageNamed(r *cimeter.Record, name string) *cimeter.Stage {
	for i := range r.Stages {
		if r.Stages[i].Name == name {
			return &r.Stages[i]
		}
	}
	return nil
}

// nearMemory finds a stage that came close to the limit without being killed.
func nearMemory(r *cimeter.Record, s *cimeter.Stage) (finding, bool) {
	if r.Limits == nil || !r.Limits.MemoryBytes.Known || r.Limits.MemoryBytes.Value == 0 || s.Usage.OOMKills.Value+s.Usage.OOMKillsNested.Value > 0 {
		return finding{}, false
	}
	limit, p := float64(r.Limits.MemoryBytes.Value), peak(&s.Usage)
	if !p.Known || p.Value < nearLimit*limit {
		return finding{}, false
	}
	if a := s.Usage.MemoryAnonBytes; a != nil && a.Max < anonShare*limit {
		return finding{}, false
	}
	f := finding{Kind: "memory", Title: "Near its memory limit", Evidence: fmt.Sprintf("peak of %s (%s)", of(p.Value, limit), percent(p.Value/limit)),
		Try: "Give it more memory before a larger input is killed.", Held: "by little memory: its peak was " + percent(p.Value/limit) + " of the limit"}
	if r.Limits.MemorySetBy != "" {
		f.Evidence += ", set by " + title(r.Limits.MemorySetBy)
	}
	return f, true
}

// waits finds what a stage waited for by its pressure.
func waits(s *cimeter.Stage, zoom func(string) string) []finding {
	p, t := s.Usage.PressureSeconds, s.Usage.WallSeconds
	if p == nil || t <= 0 {
		return nil
	}
	var fs []finding
	if v := p.IOSome; v.Value >= leastWait && v.Value >= ioShare*t {
		fs = append(fs, finding{Kind: "io", Title: "Waited for disk", Stage: name(s.Name), URL: zoom(s.Name),
			Evidence: fmt.Sprintf("some process waited for disk for %s, %s of its time", seconds(v.Value), percent(v.Value/t)),
			Try:      "Use a faster disk or a smaller cache, or move its files to memory (tmpfs).", Held: "by its disk: it waited " + seconds(v.Value)})
	}
	if v := p.MemorySome; v.Value >= leastWait && v.Value >= memoryShare*t {
		fs = append(fs, finding{Kind: "memory", Title: "Short of memory", Stage: name(s.Name), URL: zoom(s.Name),
			Evidence: fmt.Sprintf("some process waited for memory to be freed for %s, %s of its time", seconds(v.Value), percent(v.Value/t)),
			Try:      "Give it more memory.", Held: "by little memory: it waited " + seconds(v.Value) + " for it"})
	}
	return fs
}

// peak is the kernel's own maximum of memory in bytes, else the largest sample.
func peak(u *cimeter.Usage) opt {
	switch {
	case u.MemoryBytes == nil:
		return opt{}
	case u.MemoryBytes.Peak.Known:
		return number(u.MemoryBytes.Peak)
	}
	return some(u.MemoryBytes.Max)
}

// answer is the page's first sentence: which stage cost the most, and what held
// the build back.
type answer struct {
	Stage link
	Cost  string
	Held  string
}

func answerOf(r *cimeter.Record, fs []finding, zoom func(string) string) answer {
	var a answer
	var most *cimeter.Stage
	for i := range r.Stages {
		if s := &r.Stages[i]; s.Usage.CPUSeconds.Total.Known && (most == nil || s.Usage.CPUSeconds.Total.Value > most.Usage.CPUSeconds.Total.Value) {
			most = s
		}
	}
	total := r.Usage.CPUSeconds.Total
	switch {
	case most != nil && len(r.Stages) > 1 && total.Value > 0:
		v := most.Usage.CPUSeconds.Total.Value
		a.Stage = link{Text: name(most.Name), URL: zoom(most.Name)}
		a.Cost = fmt.Sprintf(" cost the most: %s of %s CPU (%s)", cpuTime(v), cpuTime(total.Value), percent(v/total.Value))
		if w := most.Usage.WallSeconds; w > 0 {
			a.Cost += " in " + seconds(w)
		}
		a.Cost += "."
	case total.Known:
		a.Cost = "It took " + cpuTime(total.Value) + " of CPU in " + seconds(wall(&r.Usage, r)) + "."
	default:
		a.Cost = "What it cost is not known."
		if unmetered(r) {
			a.Cost = "No agent metered this build: what stands here is what its CI server told. Start an agent where its runner is, and the next one shows what it costs."
		}
	}
	a.Held = "Nothing held it back."
	if len(r.Stages) == 0 || r.Usage.CPUSeconds.Total.IsZero() {
		a.Held = ""
	}
	for _, f := range fs {
		if f.Held != "" {
			a.Held = "It was held back " + f.Held + "."
			break
		}
	}
	return a
}
