package github

import (
	"strconv"
	"strings"

	"github.com/cimeter/cimeter"
)

// Key returns the key of a job that a runner has: server is the host, project
// OWNER/NAME, run the id of the run, attempt from 1 (0: not known, taken for the
// first), runner the runner's name, and job the job's key in its workflow
// (GITHUB_JOB) or its name as the API shows it: see [JobOf].
func Key(server, project, run string, attempt int, runner, job string) string {
	return cimeter.BuildKey(CI, server, project, run, strconv.Itoa(max(attempt, 1)), runner, JobOf(job))
}

// JobOf returns of a job's name, as the API shows it, what is the key of the job in
// its workflow where the workflow gives it no name: without the jobs that called its
// workflow and without the values of a matrix.
//
//	caller / test (1.25, linux) → test
func JobOf(name string) string {
	job := name[strings.LastIndex(name, " / ")+1:]
	job = strings.TrimPrefix(job, "/ ")
	if i := strings.Index(job, " ("); i > 0 && strings.HasSuffix(job, ")") {
		job = job[:i]
	}
	if job = strings.TrimSpace(job); job == "" {
		return name
	}
	return job
}
