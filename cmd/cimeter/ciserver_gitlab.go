package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/cimeter/cimeter/internal/ci"
	"github.com/cimeter/cimeter/internal/ci/gitlab/gitlabapi"
	"github.com/cimeter/cimeter/internal/config"
)

// newGitLab joins the settings of a GitLab server to its adapter.
func newGitLab(c config.CIServer, e *env) (s ciServer, err error) {
	o := gitlabapi.Options{URL: c.URL, Projects: c.Projects, Requests: c.Requests}
	if c.TokenFile != "" {
		o.Token = secretOf(e, "", c.TokenFile)
	}
	if c.CancelFile != "" {
		o.CancelToken = secretOf(e, "", c.CancelFile)
	}
	if c.CAFile != "" {
		if o.Transport, err = transportWithCA(c.CAFile); err != nil {
			return s, fmt.Errorf("ci_servers: %s: %w", c.Name, err)
		}
	}
	client, err := gitlabapi.New(o)
	if err != nil {
		return s, fmt.Errorf("ci_servers: %s: %w", c.Name, err)
	}
	if o.Token != nil {
		s.source = client
	}
	if o.CancelToken != nil {
		s.cancel = client
	}
	if c.HookSecretFile != "" {
		s.hook = &gitlabapi.Hook{Server: ci.ServerOf(c.URL), Secrets: secretOf(e, "", c.HookSecretFile)}
	}
	return s, nil
}

// transportWithCA trusts the authorities of a PEM file instead of the system's.
func transportWithCA(path string) (http.RoundTripper, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read ca_file: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca_file %s: want a certificate in PEM", path)
	}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 2, MaxConnsPerHost: 4, IdleConnTimeout: 90 * time.Second, TLSHandshakeTimeout: 10 * time.Second, MaxResponseHeaderBytes: 64 << 10,
	}, nil
}
