package citest

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// Folder is a stand-in of a CI server that answers a path with the file of that
// name in a folder: GET /api/queue with api_queue.json. It wants Token and
// remembers what it was asked.
type Folder struct {
	Dir    string
	Scheme string // before the token; "" is Bearer
	// Change replaces an answer, where it is not nil and says so.
	Change func(path string) (body string, ok bool)

	mu    sync.Mutex
	asked []string
}

// ServeHTTP implements [http.Handler].
func (f *Folder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.asked = append(f.asked, r.Method+" "+r.URL.RequestURI())
	f.mu.Unlock()
	scheme := f.Scheme
	if scheme == "" {
		scheme = "Bearer"
	}
	if r.Header.Get("Authorization") != scheme+" "+Token {
		http.Error(w, `{"message":"unauthorized"}`, http.StatusUnauthorized)
		return
	}
	if r.Method != http.MethodGet {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if f.Change != nil {
		if body, ok := f.Change(r.URL.RequestURI()); ok {
			w.Write([]byte(body))
			return
		}
	}
	b, err := os.ReadFile(filepath.Join(f.Dir, strings.ReplaceAll(strings.Trim(r.URL.Path, "/"), "/", "_")+".json"))
	if err != nil {
		http.Error(w, `{"message":"not found"}`, http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Write(b)
}

// Asked returns what was asked since the last call.
func (f *Folder) Asked(testing.TB) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}
