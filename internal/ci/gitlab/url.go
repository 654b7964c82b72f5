package gitlab

import (
	"net/url"
	"strings"

	"github.com/cimeter/cimeter/internal/ci"
)

// maxURL bounds a job's URL: GitLab's project paths end at 255 characters.
const maxURL = 2048

// JobPage is where a job is shown.
type JobPage struct {
	Server  string // host, and port where it is given, in lower case
	Project string // path of the project, with the instance's own path before it if it has one
	Job     string // job id, decimal
}

// Key is the key of the job's build, the same that [Identify] gives its containers.
func (p JobPage) Key() string { return key(p.Server, "", p.Job) }

// ParseJobURL reads a job's URL, as in
//
//	https://gitlab.example.com/group/sub/app/-/jobs/123
//
// ok is false when it is not one.
func ParseJobURL(s string) (p JobPage, ok bool) {
	if len(s) > maxURL {
		return JobPage{}, false
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return JobPage{}, false
	}
	const marker = "/-/jobs/"
	i := strings.LastIndex(u.Path, marker)
	if i < 0 {
		return JobPage{}, false
	}
	p = JobPage{
		Server:  strings.ToLower(u.Host),
		Project: strings.Trim(u.Path[:i], "/"),
		Job:     u.Path[i+len(marker):],
	}
	if p.Project == "" || !ci.IsDecimal(p.Job) {
		return JobPage{}, false
	}
	return p, true
}
