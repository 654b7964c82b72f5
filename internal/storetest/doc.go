// Package storetest holds the contract of the stores of builds: what a back end
// must answer, as one list of cases that each back end's test runs against
// itself, and the records they are run with. It is imported by tests only.
// Start with [Run].
package storetest
