package main

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/cimeter/cimeter/internal/catalog"
	"github.com/cimeter/cimeter/internal/config"
	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/tally"
)

const maxTokensBytes = 4 << 20 // more than 10,000 tokens

// newAccess reads the tokens. Reading needs none on a loopback address, where
// only this machine's users are, or where the operator says so.
func newAccess(conf config.Access, at net.Addr, counts *tally.Table, log *slog.Logger) (*httpapi.Access, error) {
	o := httpapi.AccessOptions{
		OpenRead: conf.Public,
		Rejected: func(reason string) { counts.Value(catalog.ServerRejected, reason).Add(1) },
	}
	if tcp, ok := at.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		o.OpenRead = true
	}
	if conf.TokensFile == "" {
		return httpapi.NewAccess(o), nil
	}
	file := &tokensFile{path: conf.TokensFile, log: log}
	var err error
	if o.Tokens, err = file.read(); err != nil {
		return nil, err
	}
	o.Reload = file.reload
	return httpapi.NewAccess(o), nil
}

// tokensFile is a file of tokens that may change while the server runs.
type tokensFile struct {
	path string
	log  *slog.Logger
	seen stamp
	bad  bool // the file of seen cannot be used, which was told
}

// stamp tells one state of a file from another.
type stamp struct {
	changed time.Time
	size    int64
}

// look takes the file's stamp; the zero one when there is none.
func (f *tokensFile) look() stamp {
	st, err := os.Stat(f.path)
	if err != nil {
		return stamp{}
	}
	return stamp{st.ModTime(), st.Size()}
}

// read reads the file, and remembers which state of it.
func (f *tokensFile) read() ([]httpapi.Token, error) {
	f.seen = f.look() // before the content: what changes meanwhile is read again
	text, err := config.ReadPrivate(f.path, maxTokensBytes)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	tokens, err := httpapi.ParseTokens(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.path, err)
	}
	return tokens, nil
}

// reload reads the file when it has changed. A file that is bad takes no token
// away: the last good list stays, and the log says so once.
func (f *tokensFile) reload() (tokens []httpapi.Token, changed bool) {
	if f.look() == f.seen {
		return nil, false
	}
	tokens, err := f.read()
	if err != nil {
		if !f.bad {
			f.log.Error("tokens cannot be read again, the last good ones stay", "err", err)
		}
		f.bad = true
		return nil, false
	}
	f.bad = false
	f.log.Info("tokens read again", "tokens", len(tokens))
	return tokens, true
}
