// Package summary writes a record as a person reads it: the receipt in a job's
// log, bars for a build of one stage, one line, logfmt, a markdown table, JSON.
//
// It is pure: no input or output but the writer it is given, no clock, no
// state. What is not known is a dash, never 0. Every name that a build's author
// chose passes package display; no line of any output holds a control
// character. Start with [Text].
package summary
