package config

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Bytes is a number of bytes. Its text has a unit: 64MiB, 1GB, 512 (bytes).
type Bytes int64

var byteUnits = [...]struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// UnmarshalText reads a number with a unit. The result is never negative.
func (b *Bytes) UnmarshalText(text []byte) error {
	s, unit := strings.TrimSpace(string(text)), int64(1)
	for _, u := range byteUnits {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			s, unit = strings.TrimSpace(n), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return fmt.Errorf("%q: want a number of bytes such as 64MiB", text)
	}
	*b = Bytes(n * unit)
	return nil
}

// String writes b with the largest binary unit that divides it.
func (b Bytes) String() string {
	for i := 3; i >= 0; i-- {
		if u := byteUnits[i]; b != 0 && int64(b)%u.bytes == 0 {
			return strconv.FormatInt(int64(b)/u.bytes, 10) + u.suffix
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// Pattern is a regular expression in Go's syntax (RE2: it takes linear time).
// The zero value is not given.
type Pattern struct{ *regexp.Regexp }

// UnmarshalText compiles a pattern.
func (p *Pattern) UnmarshalText(text []byte) error {
	re, err := regexp.Compile(string(text))
	if err != nil {
		return fmt.Errorf("%q: want a regular expression: %w", text, err)
	}
	p.Regexp = re
	return nil
}

// String returns the pattern's text, "" when it is not given.
func (p Pattern) String() string {
	if p.Regexp == nil {
		return ""
	}
	return p.Regexp.String()
}

const redacted = "<secret>"

// Secret is a password or token. It prints as <secret> however it is printed:
// by fmt with any verb, as JSON or text, and through slog. Only Reveal gives it.
type Secret struct{ text string }

// NewSecret holds text.
func NewSecret(text string) Secret { return Secret{text} }

// Reveal returns the secret itself, for the one place that sends it.
func (s Secret) Reveal() string { return s.text }

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.text == "" }

// Format implements [fmt.Formatter], so that %#v and %x tell nothing either.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

// String returns <secret>.
func (s Secret) String() string { return redacted }

// MarshalText writes <secret>; encoding/json uses it too.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue implements [slog.LogValuer].
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// maxSecretBytes bounds a secret's file; tokens and keys are far shorter.
const maxSecretBytes = 64 << 10

// ReadSecret returns the secret that the variable env holds, or else the text
// of the file at path without its last line break. It refuses a file that
// everybody may read. Neither given is no secret and no error.
func ReadSecret(env, path string, getenv func(string) string) (Secret, error) {
	if v := getenv(env); v != "" {
		return Secret{v}, nil
	}
	if path == "" {
		return Secret{}, nil
	}
	b, err := ReadPrivate(path, maxSecretBytes)
	if err != nil {
		return Secret{}, fmt.Errorf("read secret: %w", err)
	}
	s := strings.TrimRight(string(b), "\r\n")
	if s == "" {
		return Secret{}, fmt.Errorf("read secret: %s: empty file: want a secret", path)
	}
	return Secret{s}, nil
}

// ReadPrivate returns what is in a file of at most that many bytes. It refuses a
// file that everybody may read.
func ReadPrivate(path string, most int) ([]byte, error) {
	if err := private(path); err != nil {
		return nil, err
	}
	b, err := os.ReadFile(path)
	if err == nil && len(b) > most {
		return nil, fmt.Errorf("%s: %d bytes: want at most %d", path, len(b), most)
	}
	return b, err
}

// private reports an error unless path is a regular file that others may not
// read: jobs on the same machine run as anybody (threat T30).
func private(path string) error {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case !st.Mode().IsRegular():
		return fmt.Errorf("%s: %s: want a regular file", path, st.Mode().Type())
	case st.Mode().Perm()&0o007 != 0:
		return fmt.Errorf("%s: mode %#o lets everybody at a secret: want 0640 or 0600", path, st.Mode().Perm())
	}
	return nil
}
