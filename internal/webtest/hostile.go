package webtest

import (
	"strings"

	"github.com/cimeter/cimeter"
)

// Hostile are names that a build's author could choose against whoever opens
// its page.
var Hostile = []string{
	`<script>alert(1)</script>`, `"><script>alert(1)</script>`, `'><img src=x onerror=alert(1)>`, `<svg onload=alert(1)>`, `</title><script>alert(1)</script>`,
	`</script><script>alert(1)</script>`, `</style><script>alert(1)</script>`, `<!--<script>alert(1)`, `]]><script>alert(1)</script>`, `javascript:alert(1)`,
	`JaVaScRiPt:alert(1)//`, `data:text/html,<script>alert(1)</script>`, `" onmouseover="alert(1)`, `' onfocus='alert(1)' autofocus='`, "` onload=alert(1) `",
	`{{.}}`, `{{constructor.constructor('alert(1)')()}}`, `${alert(1)}`, `%3Cscript%3Ealert(1)%3C/script%3E`, `&lt;script&gt;alert(1)&lt;/script&gt;`,
	`&#60;img src=x onerror=alert(1)&#62;`, `<iframe srcdoc="<script>alert(1)</script>">`, `<base href=//evil.example>`, `<meta http-equiv=refresh content=0;url=//evil.example>`,
	`<link rel=stylesheet href=//evil.example/x.css>`, `<form action=//evil.example><input type=submit>`, `<style>*{display:none}</style>`, `<a href=//evil.example>x</a>`,
	"user\u202egnp.exe", "\u2066x\u2069", "\x1b[2J\x1b[31mowned", "line\nforged", "\x00\x08\x7f", "a\u2028b", "\xff\xfe", " ", "..", "../../etc/passwd",
	"a/b?c=d#e&f=g", "%2e%2e%2f", "%", "%zz", "+", "💥日本語", `=HYPERLINK("http://evil.example")`, `//evil.example/x`, `\\evil.example\x`, `https://evil.example/?<script>`,
	strings.Repeat("W<b>", 1250), strings.Repeat("e\u0301\u0302", 300),
}

// Named is r with s for every string that others choose.
func Named(r *cimeter.Record, s string) *cimeter.Record {
	r.Build = cimeter.Build{Key: cimeter.BuildKey("gitlab", "gitlab.example.com", s), CI: s, Server: s, Project: s, Number: s, Name: s, Attempt: 2,
		Pipeline: s, PipelineStage: s, Ref: s, SHA: s, Event: s, URL: s, Machine: s, Runner: cimeter.Runner{ID: s, ShortToken: s, Name: s}}
	r.Result = s
	if r.Limits != nil {
		r.Limits.MemorySetBy = s
	}
	for i := range r.Stages {
		r.Stages[i].Name, r.Stages[i].Boundary = s, cimeter.Boundary(s)
	}
	r.Verdicts = []cimeter.Verdict{{Kind: "oom", Stage: s, Evidence: s}, {Kind: s, Stage: s, Evidence: s}}
	r.Complete, r.Gaps = false, []cimeter.Gap{{Reason: s}}
	return r
}
