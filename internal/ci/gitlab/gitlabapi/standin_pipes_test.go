package gitlabapi_test

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// complexity is what GitLab counts for a query (app/graphql/types/base_field.rb and
// resolvers/base_resolver.rb): 1 for each field; that of a list is multiplied by 1.01 for
// each item of its page.
func complexity(query string) int {
	n, _ := fields(query[strings.IndexByte(query, '{'):])
	return n
}

var (
	field = regexp.MustCompile(`^(?:[a-z]\w*:)?(\.\.\.on \w+|[a-zA-Z]\w*)(\([^)]*\))?`)
	first = regexp.MustCompile(`first:(\d+)`)
)

// fields counts what stands in braces, and returns what follows.
func fields(s string) (n int, rest string) {
	s = strings.TrimLeft(s[1:], " \n")
	for s != "" && s[0] != '}' {
		m := field.FindStringSubmatch(s)
		if m == nil {
			panic("no field: " + s)
		}
		s = s[len(m[0]):]
		inner := 0
		if strings.HasPrefix(s, "{") {
			inner, s = fields(s)
		}
		if one := inner + 1; strings.HasPrefix(m[1], "...") {
			n += inner
		} else if f := first.FindStringSubmatch(m[2]); f != nil {
			size, _ := strconv.Atoi(f[1])
			n += one + one*size/100
		} else if slices.Contains([]string{"runners", "jobs"}, m[1]) {
			n += 2 * one
		} else {
			n += one
		}
		s = strings.TrimLeft(s, " \n")
	}
	return n, strings.TrimPrefix(s, "}")
}

func TestComplexity(t *testing.T) {
	for query, want := range map[string]int{
		"{a}": 1, "{a{b c}}": 3, "query($x:[ID!]){a(first:100){nodes{id}}}": 6, "{x:a(b:1){c} ...on D{e f}}": 4, "mutation{jobCancel(input:{id:1}){errors}}": 2, "{a(first:50){b(first:100){c}}}": 7,
	} {
		if got := complexity(query); got != want {
			t.Errorf("%s: %d, want %d", query, got, want)
		}
	}
}

var group = regexp.MustCompile(`(?:(g\d+):)?projects\(ids:\$(p\d+),first:(\d+)\)`)

// active are the jobs of pipelines that wait or run, by project, newest first, and
// whether one runs.
func (s *standin) active() (jobs map[int64][]*job, runs map[int64]bool) {
	jobs, runs = map[int64][]*job{}, map[int64]bool{}
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(s.jobs))) {
		if j := s.jobs[id]; !j.deleted && !s.hidden[id] && (j.status == "pending" || j.status == "running") {
			jobs[j.project] = append(jobs[j.project], j)
			runs[j.project] = runs[j.project] || j.status == "running"
		}
	}
	return jobs, runs
}

// pipelines answers for the active pipelines of projects.
func (s *standin) pipelines(query string, variables map[string]any) map[string]any {
	data := map[string]any{}
	jobs, runs := s.active()
	all := s.byPipeline()
	for _, m := range group.FindAllStringSubmatch(query, -1) {
		nodes := []any{}
		ids, _ := variables[m[2]].([]any)
		most, _ := strconv.Atoi(m[3])
		for _, gid := range ids[:min(len(ids), most)] {
			id, err := strconv.ParseInt(strings.TrimPrefix(fmt.Sprint(gid), "gid://gitlab/Project/"), 10, 64)
			if err != nil || id < 1 || id > s.projects {
				continue
			}
			node := map[string]any{"id": gid}
			for alias, running := range map[string]bool{"w": false, "r": true} {
				pipes := []any{}
				if len(jobs[id]) > 0 && runs[id] == running {
					pipes = append(pipes, map[string]any{"id": "gid://gitlab/Ci::Pipeline/1", "jobs": s.openJobs(jobs[id], false), "downstream": map[string]any{"nodes": []any{map[string]any{"jobs": s.openJobs(jobs[id], true)}}}})
				}
				node[alias] = map[string]any{"nodes": pipes, "pageInfo": map[string]any{"hasNextPage": false}}
			}
			s.newest(node, all[id], strings.Contains(query, "SUCCESS"))
			nodes = append(nodes, node)
		}
		name := m[1]
		if name == "" {
			name = "projects"
		}
		data[name] = map[string]any{"nodes": nodes}
	}
	return data
}

// byPipeline are all jobs, by project and pipeline, the newest first.
func (s *standin) byPipeline() map[int64]map[int64][]*job {
	all := map[int64]map[int64][]*job{}
	for _, id := range slices.Backward(slices.Sorted(maps.Keys(s.jobs))) {
		j := s.jobs[id]
		if j.deleted || s.hidden[id] {
			continue
		}
		if all[j.project] == nil {
			all[j.project] = map[int64][]*job{}
		}
		pipe := cmp.Or(j.pipeline, id)
		all[j.project][pipe] = append(all[j.project][pipe], j)
	}
	return all
}

// newest adds a project's newest pipelines to what is told of it: the first one, or with
// ended five, with the builds of each that are over.
func (s *standin) newest(node map[string]any, over map[int64][]*job, ended bool) {
	if !ended {
		one := []any{}
		if len(over) > 0 {
			one = append(one, map[string]any{"id": fmt.Sprint("gid://gitlab/Ci::Pipeline/", slices.Max(slices.Collect(maps.Keys(over))))})
		}
		node["n"] = map[string]any{"nodes": one}
		return
	}
	pipes, runs := []any{}, []any{}
	for _, number := range slices.Backward(slices.Sorted(maps.Keys(over))) {
		running := slices.ContainsFunc(over[number], func(j *job) bool { return j.status == "running" })
		jobs := slices.DeleteFunc(slices.Clone(over[number]), func(j *job) bool { return j.finished.IsZero() })
		pipe := map[string]any{"id": fmt.Sprint("gid://gitlab/Ci::Pipeline/", number), "jobs": s.openJobs(jobs, false), "downstream": map[string]any{"nodes": []any{map[string]any{"jobs": s.openJobs(jobs, true)}}}}
		if pipes = append(pipes, pipe); running {
			runs = append(runs, pipe)
		}
	}
	node["w"] = map[string]any{"nodes": pipes[:min(5, len(pipes))], "pageInfo": map[string]any{"hasNextPage": len(pipes) > 5}}
	node["r"] = map[string]any{"nodes": runs[:min(5, len(runs))], "pageInfo": map[string]any{"hasNextPage": len(runs) > 5}}
}

// openJobs is a page of 20 of a pipeline's jobs that wait or run; those named child are
// of one that it started.
func (s *standin) openJobs(jobs []*job, child bool) map[string]any {
	all := []any{}
	for _, j := range jobs {
		if (j.name == "child") == child {
			all = append(all, s.node(j))
		}
	}
	return map[string]any{"nodes": all[:min(20, len(all))], "pageInfo": map[string]any{"hasNextPage": len(all) > 20}}
}
