// Package web is the pages: what runs now, what waits, the builds, one build, projects,
// jobs, machines and runners, and the comparison of two builds.
//
// It owns the templates, the style, the scripts, the drawings that the server
// makes (SVG) and the words of the filter. Every page is complete without
// script; scripts add the shared cursor, zoom, and live update. It reads what a
// [Source] gives, writes nothing, and answers GET and HEAD only. It does not
// log: what an operator should see goes to Options.Report. No string of a build
// reaches a page but through package display and html/template. Start with
// [New]. Everything in it may be used by many goroutines at once.
package web
