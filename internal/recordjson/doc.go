// Package recordjson owns the JSON of records where it is read and written by
// the thousand: what a server spends most of its time on is hundreds of optional
// numbers in each record. It tells byte for byte and value for value the same as
// encoding/json, to which it leaves whatever it has no own way for, in a fraction
// of the time. It is pure. Start with Append and Decode; all of it may be called
// by many goroutines.
package recordjson
