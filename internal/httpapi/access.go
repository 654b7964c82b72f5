package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/cimeter/cimeter"
)

// Role says what a token is good for. A token has one role and is of no use for
// the others: an agent's token cannot read.
type Role uint8

// The roles.
const (
	Anybody Role = iota // no token is asked for: health and version
	Read                // pages, API and metrics
	Push                // what agents send
	Cancel              // cancel builds, and nothing else
)

// String is the role as it stands in a file of tokens.
func (r Role) String() string {
	switch r {
	case Read:
		return "read"
	case Push:
		return "push"
	case Cancel:
		return "cancel"
	}
	return "anybody"
}

// Token is a token as the server knows it: by its SHA-256, which is enough for
// 256 random bits. Name is for people and, with basic auth, the user.
type Token struct {
	Role Role
	Name string
	Hash [sha256.Size]byte
}

const (
	maxTokens     = 10_000
	maxTokenBytes = 512
	wrongRate     = 10 // wrong tokens a second that are looked at; more are turned away unseen
)

// ParseTokens reads the text of a file of tokens, one a line: role, name, and the SHA-256
// of the token in hexadecimal. Empty lines and those that begin with # do not
// count. The error wraps [cimeter.ErrInvalid], names the line and repeats
// nothing of it.
func ParseTokens(text string) ([]Token, error) {
	var tokens []Token
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.Fields(line)
		var t Token
		bad := len(fields) != 3 || len(tokens) == maxTokens
		if !bad {
			switch fields[0] {
			case "read":
				t.Role = Read
			case "push":
				t.Role = Push
			case "cancel":
				t.Role = Cancel
			default:
				bad = true
			}
			t.Name = fields[1]
			hash, err := hex.DecodeString(fields[2])
			bad = bad || err != nil || copy(t.Hash[:], hash) != sha256.Size || len(hash) != sha256.Size
		}
		if bad {
			return nil, fmt.Errorf("tokens: line %d: want read, push or cancel, a name, and a SHA-256 in hexadecimal, at most %d lines: %w", n, maxTokens, cimeter.ErrInvalid)
		}
		tokens = append(tokens, t)
	}
	return tokens, nil
}

// AccessOptions are what NewAccess needs.
type AccessOptions struct {
	Tokens []Token
	// Reload returns the tokens of now; changed is false while they are those of
	// the last call. It is asked at most once a second, by one caller at a time,
	// when a request brings a token. nil: the tokens stay as they are.
	Reload   func() (tokens []Token, changed bool)
	OpenRead bool             // reading needs no token: a loopback listener, or the operator says so
	Now      func() time.Time // nil: time.Now
	Rejected func(reason string)
}

// Access decides who may use a route. A nil Access lets everybody in.
type Access struct {
	o AccessOptions

	mu     sync.Mutex
	tokens []Token // not changed, but replaced
	looked time.Time
	left   float64 // wrong tokens that may be looked at now
	since  time.Time
}

const reloadEvery = time.Second

// NewAccess returns the access that the options describe.
func NewAccess(o AccessOptions) *Access {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Rejected == nil {
		o.Rejected = func(string) {}
	}
	return &Access{o: o, tokens: o.Tokens, left: wrongRate, since: o.Now(), looked: o.Now()}
}

// check returns nil when the request may use a route of that role.
func (a *Access) check(w http.ResponseWriter, r *http.Request, role Role) error {
	if a == nil || role == Anybody || role == Read && a.o.OpenRead {
		return nil
	}
	token, user, ok := credentials(r)
	if !ok {
		a.o.Rejected("unauthorized")
		w.Header().Set("WWW-Authenticate", `Bearer realm="cimeter"`)
		if role == Read {
			w.Header().Add("WWW-Authenticate", `Basic realm="cimeter", charset="UTF-8"`)
		}
		return &problem{Status: http.StatusUnauthorized, Detail: "want a token of the role " + role.String()}
	}
	// The one check that is the same for a token that is known and one that is not.
	found, known := a.find(token, user)
	switch {
	case known && found == role:
		return nil
	case known:
		a.o.Rejected("forbidden")
		return &problem{Status: http.StatusForbidden, Detail: "want a token of the role " + role.String()}
	case !a.allowWrong():
		a.o.Rejected("throttled")
		w.Header().Set("Retry-After", "1")
		return &problem{Status: http.StatusTooManyRequests, Detail: "too many wrong tokens"}
	}
	a.o.Rejected("unauthorized")
	w.Header().Set("WWW-Authenticate", `Bearer realm="cimeter", error="invalid_token"`)
	return &problem{Status: http.StatusUnauthorized, Detail: "token is not known"}
}

// credentials takes the token of a request: a bearer token, or the password of
// basic auth, whose user is the token's name.
func credentials(r *http.Request) (token, user string, ok bool) {
	if user, password, ok := r.BasicAuth(); ok {
		return password, user, len(password) <= maxTokenBytes
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, "", strings.EqualFold(scheme, "Bearer") && token != "" && len(token) <= maxTokenBytes
}

// find looks a token up by its hash, in the same time wherever it stands.
func (a *Access) find(token, user string) (Role, bool) {
	hash := sha256.Sum256([]byte(token))
	at := -1
	tokens := a.current()
	for i := range tokens {
		if subtle.ConstantTimeCompare(hash[:], tokens[i].Hash[:]) == 1 {
			at = i
		}
	}
	if at < 0 || user != "" && user != tokens[at].Name {
		return Anybody, false
	}
	return tokens[at].Role, true
}

// current returns the tokens of now.
func (a *Access) current() []Token {
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.o.Now(); a.o.Reload != nil && now.Sub(a.looked) >= reloadEvery {
		a.looked = now
		if tokens, changed := a.o.Reload(); changed {
			a.tokens = tokens
		}
	}
	return a.tokens
}

// allowWrong bounds how often anybody is told that a token is wrong.
func (a *Access) allowWrong() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.o.Now()
	a.left = min(wrongRate, a.left+wrongRate*max(0, now.Sub(a.since).Seconds()))
	a.since = now
	if a.left < 1 {
		return false
	}
	a.left--
	return true
}
