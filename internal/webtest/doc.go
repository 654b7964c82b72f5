// Package webtest is what tests of the pages need: builds as they are, hostile
// names, a source that holds records in memory, and a real browser.
//
// It is imported by tests only.
package webtest
