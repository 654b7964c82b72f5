package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"net/http"
	"path"
	"strings"
	"sync"
)

//go:embed static templates
var files embed.FS

// bundles are the assets that pages ask for, each of its parts in order. A page
// loads one script of ours, so that it stays within its requests.
var bundles = map[string][]string{
	"style.css": {"static/style.css", "static/chart.css"},
	"chart.css": {"static/vendor/uPlot.min.css", "static/style.css", "static/chart.css"},
	"page.js":   {"static/page.js", "static/live.js", "static/table.js", "static/lines.js", "static/occupancy.js", "static/suggest.js"},
	"chart.js":  {"static/page.js", "static/live.js", "static/table.js", "static/chart.js", "static/build.js"},
	"uplot.js":  {"static/vendor/uPlot.iife.min.js", "static/expose.js"},
	"plots.js":  {"static/chart.js", "static/plots.js"}, // beside page.js
	"icon.svg":  {"static/icon.svg"},
}

// asset is a file as it is served: its name holds its content's hash, so it
// never changes.
type asset struct {
	path    string // /static/style.0123456789ab.css
	kind    string
	plain   []byte
	gzipped []byte
}

type assets struct {
	byName map[string]*asset
	byPath map[string]*asset
}

func newAssets() (assets, error) {
	a := assets{map[string]*asset{}, map[string]*asset{}}
	for bundle, parts := range bundles {
		var b bytes.Buffer
		for _, p := range parts {
			content, err := files.ReadFile(p)
			if err != nil {
				return a, fmt.Errorf("asset %s: %w", bundle, err)
			}
			b.Write(content)
			b.WriteByte('\n')
		}
		sum := sha256.Sum256(b.Bytes())
		ext := path.Ext(bundle)
		f := &asset{plain: b.Bytes(), gzipped: gzipped(b.Bytes()),
			path: fmt.Sprintf("/static/%s.%s%s", strings.TrimSuffix(bundle, ext), hex.EncodeToString(sum[:6]), ext)}
		switch ext {
		case ".css":
			f.kind = "text/css; charset=utf-8"
		case ".js":
			f.kind = "text/javascript; charset=utf-8"
		case ".svg":
			f.kind = "image/svg+xml"
		}
		a.byName[bundle], a.byPath[f.path] = f, f
	}
	return a, nil
}

// press compresses pages as they are made: a compressor and its buffers are large,
// so they are used again. A page is read once; the last tenth of its size is not
// worth twice the time.
type press struct{ pool sync.Pool }

type pressed struct {
	w   *gzip.Writer
	out bytes.Buffer
}

// zip compresses b and calls with with it, which must not keep it.
func (p *press) zip(b []byte, with func(zipped []byte)) error {
	z, _ := p.pool.Get().(*pressed)
	if z == nil {
		w, err := gzip.NewWriterLevel(nil, pageLevel)
		if err != nil {
			return err
		}
		z = &pressed{w: w}
	}
	defer p.pool.Put(z)
	z.out.Reset()
	z.w.Reset(&z.out)
	z.w.Write(b) // a buffer takes every write
	z.w.Close()
	with(z.out.Bytes())
	return nil
}

const pageLevel = 4

// gzipped compresses b; a buffer takes every write.
func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil
	}
	w.Write(b)
	w.Close()
	return out.Bytes()
}

// path returns where a page finds a bundle.
func (a assets) path(bundle string) (string, error) {
	f := a.byName[bundle]
	if f == nil {
		return "", fmt.Errorf("no asset %s", bundle)
	}
	return f.path, nil
}

func (a assets) serve(w http.ResponseWriter, r *http.Request) bool {
	f := a.byPath[r.URL.Path]
	if f == nil {
		return false
	}
	h := w.Header()
	h.Set("Content-Type", f.kind)
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	send(w, r, http.StatusOK, f.plain, f.gzipped)
	return true
}

// send writes a body, compressed when the client takes it.
func send(w http.ResponseWriter, r *http.Request, status int, plain, zipped []byte) {
	h := w.Header()
	h.Add("Vary", "Accept-Encoding")
	body := plain
	if zipped != nil && acceptsGzip(r) {
		h.Set("Content-Encoding", "gzip")
		body = zipped
	}
	h.Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		w.Write(body) // a client that went away is not an error of ours
	}
}

func acceptsGzip(r *http.Request) bool {
	for _, line := range r.Header.Values("Accept-Encoding") {
		for part := range strings.SplitSeq(line, ",") {
			coding, quality, _ := strings.Cut(strings.TrimSpace(part), ";")
			if strings.TrimSpace(coding) == "gzip" && strings.ReplaceAll(quality, " ", "") != "q=0" {
				return true
			}
		}
	}
	return false
}
