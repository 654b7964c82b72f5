package cimeter

import "errors"

// The handful of errors that callers act on. Wrap them with operation and
// subject; match with errors.Is. An error that wraps none of them is internal.
var (
	ErrNotFound     = errors.New("not found")
	ErrInvalid      = errors.New("invalid")
	ErrConflict     = errors.New("conflict")
	ErrUnauthorized = errors.New("unauthorized")
	ErrUnavailable  = errors.New("unavailable")
	ErrUnsupported  = errors.New("not supported")
	// ErrGone says that a thing ended between being seen and being read. It is
	// an expected race: count it, do not log it as an error.
	ErrGone = errors.New("gone")
)
