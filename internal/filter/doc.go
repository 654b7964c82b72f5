// Package filter owns the language in which a person asks for builds:
//
//	project:group/app -result:success cpu>600s mem>90% since:7d lint
//
// Words are looked for in a build's project, name, ref, number and key;
// field:value compares. It is pure: it reads no clock and touches no store.
// Start with [Parse]; [Filter.String] writes a filter back in its one form.
// A Filter is a value: share it freely as long as nobody writes to it.
package filter
