package debug

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// defaultSeconds and maxSeconds are how long a CPU profile or a trace takes.
	defaultSeconds = 30
	maxSeconds     = 300
	// slack is what an answer may take beyond the time of its profile.
	slack = 30 * time.Second
)

// Options of the handler.
type Options struct {
	Vars http.Handler // answers /debug/vars; nil: it is not there
	// Token is asked of everybody, as a bearer token or the password of basic
	// auth. Without one everybody who reaches the listener is answered, if they
	// ask for it by an address of this machine.
	Token string
}

// Handler serves the debug endpoints. Make it with New.
type Handler struct {
	mux    *http.ServeMux
	token  [sha256.Size]byte
	locked bool
	busy   chan struct{} // held while a CPU profile or a trace is taken
}

// New returns the handler that the options describe.
func New(o Options) *Handler {
	h := &Handler{mux: http.NewServeMux(), token: sha256.Sum256([]byte(o.Token)), locked: o.Token != "", busy: make(chan struct{}, 1)}
	h.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/debug/", http.StatusFound) })
	h.mux.HandleFunc("GET /debug/{$}", h.list(o.Vars != nil))
	h.mux.HandleFunc("GET /debug/pprof/{$}", h.list(o.Vars != nil))
	h.mux.HandleFunc("GET /debug/pprof/{name}", h.profile)
	h.mux.HandleFunc("GET /debug/pprof/profile", h.timed(pprof.StartCPUProfile, pprof.StopCPUProfile, "profile"))
	h.mux.HandleFunc("GET /debug/pprof/trace", h.timed(trace.Start, trace.Stop, "trace"))
	if o.Vars != nil {
		h.mux.Handle("/debug/vars", o.Vars)
	}
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case h.locked && !h.known(r):
		w.Header().Add("WWW-Authenticate", `Bearer realm="cimeter debug"`)
		w.Header().Add("WWW-Authenticate", `Basic realm="cimeter debug", charset="UTF-8"`)
		http.Error(w, "want the token of the debug listener", http.StatusUnauthorized)
	case !h.locked && !local(r.Host):
		// A page elsewhere whose name was made to lead here (DNS rebinding).
		http.Error(w, "asked for by a name: want localhost or an address", http.StatusForbidden)
	default:
		h.mux.ServeHTTP(w, r)
	}
}

// known reports whether the request has the token; it takes as long for a wrong one.
func (h *Handler) known(r *http.Request) bool {
	_, token, ok := r.BasicAuth()
	if !ok {
		var scheme string
		scheme, token, _ = strings.Cut(r.Header.Get("Authorization"), " ")
		ok = strings.EqualFold(scheme, "Bearer")
	}
	sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
	return subtle.ConstantTimeCompare(sum[:], h.token[:]) == 1 && ok
}

// local reports whether a Host header is localhost or an address, which no
// foreign name can be made to be.
func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost"
}

// list answers the page of all endpoints.
func (h *Handler) list(vars bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		var b strings.Builder
		b.WriteString("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>cimeter: debug</title>\n<h1>cimeter: debug</h1>\n<ul>\n")
		item := func(path, text string) {
			fmt.Fprintf(&b, "<li><a href=\"%s\">%[1]s</a> %s</li>\n", html.EscapeString(path), html.EscapeString(text))
		}
		if vars {
			item("/debug/vars", "queue, metrics and memory as JSON (expvar)")
		}
		profiles := pprof.Profiles()
		slices.SortFunc(profiles, func(a, b *pprof.Profile) int { return strings.Compare(a.Name(), b.Name()) })
		for _, p := range profiles {
			item("/debug/pprof/"+p.Name()+"?debug=1", strconv.Itoa(p.Count())+" entries")
		}
		item("/debug/pprof/profile?seconds=30", "CPU time over that many seconds, for go tool pprof")
		item("/debug/pprof/trace?seconds=5", "what the runtime does over that many seconds, for go tool trace")
		b.WriteString("</ul>\n")
		_, _ = w.Write([]byte(b.String())) // an error is the connection's
	}
}

// profile answers one of the runtime's profiles: as text with debug=1 or 2, else
// as go tool pprof reads it. gc=1 collects garbage before one of the heap.
func (h *Handler) profile(w http.ResponseWriter, r *http.Request) {
	p := pprof.Lookup(r.PathValue("name"))
	if p == nil {
		http.Error(w, "no such profile", http.StatusNotFound)
		return
	}
	form, err := number(r, "debug", 0, 2, 0)
	if err == nil && r.FormValue("seconds") != "" {
		err = fmt.Errorf("seconds: want none: only profile and trace take a time")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if r.FormValue("gc") == "1" && p.Name() == "heap" {
		runtime.GC()
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if form == 0 {
		download(w, p.Name())
	}
	_ = p.WriteTo(w, form) // an error is the connection's
}

// timed answers a profile that is taken over a time, one at once.
func (h *Handler) timed(start func(io.Writer) error, stop func(), name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		seconds, err := number(r, "seconds", 1, maxSeconds, defaultSeconds)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		select {
		case h.busy <- struct{}{}:
			defer func() { <-h.busy }()
		default:
			w.Header().Set("Retry-After", strconv.Itoa(defaultSeconds))
			http.Error(w, "a profile or trace is being taken: want one at a time", http.StatusConflict)
			return
		}
		length := time.Duration(seconds) * time.Second
		// Where the server has no deadlines (a test's recorder) there is none to move.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(length + slack))
		download(w, name)
		if err := start(w); err != nil {
			w.Header().Del("Content-Disposition")
			http.Error(w, "start "+name+": "+err.Error(), http.StatusInternalServerError)
			return
		}
		defer stop()
		timer := time.NewTimer(length)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
		}
	}
}

func download(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
}

// number reads a parameter of the request.
func number(r *http.Request, name string, least, most, otherwise int) (int, error) {
	text := r.FormValue(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%s: want %d to %d", name, least, most)
	}
	return n, nil
}
