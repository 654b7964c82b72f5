package process

import (
	"strings"
	"testing"
)

func FuzzParseNSpid(f *testing.F) {
	for _, s := range []string{"Name:\tsleep\nNSpid:\t7352\t1\nNSpgid:\t7352\t1\n", "Name:\tcat\nNSpid:\t12\n", "Name:\tcat\nNSpid:", "NSpid:\t1\t2\n", "", "\nNSpid:\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		own, err := parseNSpid(b, 1)
		if own && (err != nil || !strings.Contains(string(b), "\nNSpid:")) {
			t.Errorf("%q: %v, %v", b, own, err)
		}
	})
}

func TestParseNSpid(t *testing.T) {
	for text, want := range map[string]bool{
		"Name:\tsleep\nNSpid:\t7352\t1\nNSpgid:\t7352\t1\n": true, "Name:\tcat\nNSpid:\t12\nNSpgid:\t12\t3\n": false, "Name:\tx\nNSpid:\t1\t2\t3\n": true,
	} {
		if own, err := parseNSpid([]byte(text), 1); err != nil || own != want {
			t.Errorf("%q: %v, %v, want %v", text, own, err, want)
		}
	}
	if _, err := parseNSpid([]byte("Name:\tNSpid: 1 2\n"), 1); err == nil {
		t.Error("a name that looks like the line: want an error")
	}
}
