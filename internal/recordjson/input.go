package recordjson

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// input is a document and how far it is read.
type input struct {
	doc []byte
	at  int
}

// peek returns the next character that is no white space; 0: there is none.
func (in *input) peek() byte {
	for in.at < len(in.doc) {
		switch c := in.doc[in.at]; c {
		case ' ', '\t', '\n', '\r':
			in.at++
		default:
			return c
		}
	}
	return 0
}

func (in *input) take(c byte) bool {
	if in.peek() != c {
		return false
	}
	in.at++
	return true
}

func (in *input) word(w string) bool {
	if in.peek() != w[0] || len(in.doc)-in.at < len(w) || string(in.doc[in.at:in.at+len(w)]) != w {
		return false
	}
	in.at += len(w)
	return true
}

func (in *input) null() bool { return in.word("null") }

// quoted returns the next string with its quotes; false: it holds what would
// have to be translated, or is none.
func (in *input) quoted() ([]byte, bool) {
	if in.peek() != '"' {
		return nil, false
	}
	for i := in.at + 1; i < len(in.doc); i++ {
		switch c := in.doc[i]; {
		case c == '"':
			token := in.doc[in.at : i+1]
			in.at = i + 1
			return token, true
		case c < ' ' || c == '\\' || c >= utf8.RuneSelf:
			return nil, false
		}
	}
	return nil, false
}

// text returns the next string.
func (in *input) text() (string, bool) {
	if token, ok := in.quoted(); ok {
		return string(token[1 : len(token)-1]), true
	}
	if in.peek() != '"' {
		return "", false
	}
	for i := in.at + 1; i < len(in.doc); i++ {
		switch in.doc[i] {
		case '\\':
			i++
		case '"':
			var s string
			err := json.Unmarshal(in.doc[in.at:i+1], &s)
			in.at = i + 1
			return s, err == nil
		}
	}
	return "", false
}

// digits returns how many digits stand from i on.
func (in *input) digits(i int) int {
	n := 0
	for i+n < len(in.doc) && in.doc[i+n]-'0' < 10 {
		n++
	}
	return n
}

// number returns the next number and whether it is a whole one.
func (in *input) number() (token []byte, integer bool) {
	in.peek()
	i := in.at
	if i < len(in.doc) && in.doc[i] == '-' {
		i++
	}
	n := in.digits(i)
	if n == 0 || n > 1 && in.doc[i] == '0' {
		return nil, false
	}
	i += n
	integer = true
	if i < len(in.doc) && in.doc[i] == '.' {
		if n = in.digits(i + 1); n == 0 {
			return nil, false
		}
		i += 1 + n
		integer = false
	}
	if i < len(in.doc) && in.doc[i]|0x20 == 'e' {
		if i++; i < len(in.doc) && (in.doc[i] == '+' || in.doc[i] == '-') {
			i++
		}
		if n = in.digits(i); n == 0 {
			return nil, false
		}
		i += n
		integer = false
	}
	token = in.doc[in.at:i]
	in.at = i
	return token, integer
}

func (in *input) float(v *float64) bool {
	token, integer := in.number()
	if integer && len(token) <= 15 && token[0] != '-' { // exact in a float
		*v = float64(whole15(token))
		return true
	}
	f, err := strconv.ParseFloat(string(token), 64)
	*v = f
	return err == nil
}

func (in *input) integer(v *int64) bool {
	token, integer := in.number()
	if !integer {
		return false
	}
	if len(token) <= 15 && token[0] != '-' {
		*v = whole15(token)
		return true
	}
	n, err := strconv.ParseInt(string(token), 10, 64)
	*v = n
	return err == nil
}

func (in *input) unsigned(v *uint64) bool {
	token, integer := in.number()
	if !integer || token[0] == '-' {
		return false
	}
	n, err := strconv.ParseUint(string(token), 10, 64)
	*v = n
	return err == nil
}

// whole15 is the number of at most 15 digits.
func whole15(digits []byte) (n int64) {
	for _, c := range digits {
		n = n*10 + int64(c-'0')
	}
	return n
}
