// Package webconfig serves HTTP as a web configuration file of Prometheus'
// exporters says: TLS, basic authentication, headers, a rate limit.
//
// It is the adapter of prometheus/exporter-toolkit, which logs what it does on
// the logger it is given. It adds no limits: give it the server of
// httpapi.NewServer. Start with [Serve].
package webconfig

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/prometheus/exporter-toolkit/web"
)

// Check reports what is wrong with a web configuration file.
func Check(file string) error {
	if file == "" {
		return nil
	}
	if err := web.Validate(file); err != nil {
		return fmt.Errorf("web config file %s: %w", file, err)
	}
	return nil
}

// Serve answers on l with s until s is closed, and then returns
// http.ErrServerClosed. An empty file is plain HTTP without authentication.
// The file is read again for every connection and request, so that new
// certificates and passwords need no restart; one that is wrong at the start is
// an error.
func Serve(l net.Listener, s *http.Server, file string, logger *slog.Logger) error {
	if err := Check(file); err != nil {
		l.Close()
		return err
	}
	systemdSocket := false
	return web.Serve(l, s, &web.FlagConfig{WebSystemdSocket: &systemdSocket, WebConfigFile: &file}, logger)
}
