package httpapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"
)

// The limits of every HTTP server of cimeter.
const (
	readHeaderTimeout = 5 * time.Second  // a client that dribbles its header (slowloris)
	readTimeout       = 30 * time.Second // the body included; no route of the agent reads one
	writeTimeout      = 30 * time.Second // a client that does not read; a stream extends it by http.ResponseController
	idleTimeout       = 60 * time.Second // longer than the usual scrape interval of 15 to 30 s
	maxHeaderBytes    = 16 << 10
	maxConnections    = 512  // Prometheus' own default
	maxPushers        = 4096 // of a server of agents, each with a connection that it keeps: twice the fleet that is aimed for
	shutdownTimeout   = 5 * time.Second
)

// Server is an HTTP server with all limits set. Make it with NewServer.
type Server struct {
	http  *http.Server
	conns *connections
}

// NewServer returns a server of h. It is the only way to make one: no server is
// without limits. Where agents send, an API with Ingest, it holds more
// connections. What net/http has to say of clients (failed handshakes, broken
// headers) goes to errorLog; nil drops it.
func NewServer(h http.Handler, errorLog *log.Logger) *Server {
	if errorLog == nil {
		errorLog = log.New(io.Discard, "", 0)
	}
	limit, over := maxConnections, func() {}
	if api, ok := h.(*API); ok {
		if api.o.Ingest != nil {
			limit = maxPushers
		}
		if api.o.Closed != nil {
			over = api.o.Closed
		}
	}
	s := &Server{conns: newConnections(limit, over)}
	s.http = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          errorLog,
		ConnContext:       s.conns.context,
	}
	if api, ok := h.(*API); ok {
		s.http.RegisterOnShutdown(api.Close)
	}
	return s
}

// Serve answers on l until ctx is done, then lets what runs finish for up to
// 5 s, and returns nil. It closes l; call it once. serve does the serving (see
// package webconfig, for TLS and authentication); nil is plain HTTP.
func (s *Server) Serve(ctx context.Context, l net.Listener, serve func(net.Listener, *http.Server) error) error {
	if serve == nil {
		serve = func(l net.Listener, h *http.Server) error { return h.Serve(l) }
	}
	l = s.conns.listen(l)
	defer l.Close()
	served := make(chan error, 1)
	go func() { served <- serve(l, s.http) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve http on %s: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if err := s.http.Shutdown(grace); err != nil {
		s.http.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve http on %s: %w", l.Addr(), err)
	}
	return nil
}
