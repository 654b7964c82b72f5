// Package kubeapi asks a cluster's API server which jobs the runners of Actions
// Runner Controller have: the one thing of a pod that no runtime on its node tells.
//
// It owns one watch at a time for each call, with the token and the authorities of a
// service account. It makes one try and never logs; of what the server says only the
// runner's job is kept. It needs the right to watch
// ephemeralrunners.actions.github.com, and no other. Start with [New] or, in a pod,
// [InCluster]. A Client may be used by many goroutines at once.
//
// It speaks HTTP itself: k8s.io/client-go costs each start of a program that has it
// more than the whole of this does.
package kubeapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci/github"
	"github.com/cimeter/cimeter/internal/outbound"
)

// Options say where the API server is and as whom it is asked.
type Options struct {
	URL       string // https://HOST:PORT
	TokenFile string // read before each request: the kubelet replaces it
	CAFile    string // PEM of the authorities that may sign the server's certificate
	Transport http.RoundTripper
}

// account is where the kubelet puts a pod's service account.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// InCluster returns the options for a pod, by the variables that the kubelet sets.
// The error wraps [cimeter.ErrInvalid] outside of a pod.
func InCluster(getenv func(string) string) (Options, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return Options{}, fmt.Errorf("address of the API server: KUBERNETES_SERVICE_HOST and _PORT are not set: want them, as in a pod, or an address: %w", cimeter.ErrInvalid)
	}
	return Options{
		URL: "https://" + net.JoinHostPort(host, port), TokenFile: filepath.Join(account, "token"), CAFile: filepath.Join(account, "ca.crt"),
	}, nil
}

// Client asks. Make it with New.
type Client struct {
	o    Options
	base string
	http *outbound.Client
}

// The bounds of what is asked and read.
const (
	maxName  = 253     // bytes of a name in Kubernetes
	maxEvent = 2 << 20 // bytes of one event: etcd takes objects of 1.5 MiB
	maxError = 4 << 10 // bytes of an answer that is none
	maxToken = 64 << 10
	// watchTime is how long one watch is asked for: the server ends it then.
	watchTime = 5 * time.Minute
)

// New returns a client that does nothing yet. The error wraps [cimeter.ErrInvalid].
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
		return nil, fmt.Errorf("address of the API server: want https://HOST:PORT: %w", cimeter.ErrInvalid)
	}
	if u.Scheme == "http" && o.TokenFile != "" {
		return nil, fmt.Errorf("address of the API server: a token is sent by https only: %w", cimeter.ErrInvalid)
	}
	return &Client{
		o: o, base: strings.TrimRight(o.URL, "/"), http: outbound.New(outbound.Options{CAFile: o.CAFile, Transport: o.Transport}),
	}, nil
}

// Close closes the connections that wait for the next request.
func (c *Client) Close() { c.http.Close() }

// object is what is read of an EphemeralRunner
// (apis/actions.github.com/v1alpha1/ephemeralrunner_types.go).
type object struct {
	Metadata struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Spec struct {
		ConfigURL string `json:"githubConfigUrl"`
	} `json:"spec"`
	Status struct {
		Repository string `json:"jobRepositoryName"`
		Ref        string `json:"jobWorkflowRef"`
		RunID      int64  `json:"workflowRunId"`
		Job        string `json:"jobDisplayName"`
	} `json:"status"`
}

// status is what a server says of a refusal.
type status struct {
	Reason string `json:"reason"`
	Code   int    `json:"code"`
}

// WatchRunner calls fn for what a runner is now, and each time it changes, until
// the server ends the watch, which is no error: it does after some minutes.
//
// The error wraps [cimeter.ErrNotFound] when the runner, or the kind of object, is
// not there (any more), [cimeter.ErrUnauthorized] when the token is refused or lacks
// the right, [cimeter.ErrInvalid] for an answer that makes no sense, and
// [cimeter.ErrUnavailable] for no answer.
func (c *Client) WatchRunner(ctx context.Context, namespace, name string, fn func(github.Ephemeral)) error {
	if namespace == "" || name == "" || len(namespace) > maxName || len(name) > maxName || strings.ContainsAny(namespace+name, "/,=! ") {
		return fmt.Errorf("runner %.100q in %.100q: want names: %w", name, namespace, cimeter.ErrInvalid)
	}
	q := url.Values{
		"watch": {"1"}, "fieldSelector": {"metadata.name=" + name}, "timeoutSeconds": {strconv.Itoa(int(watchTime.Seconds()))},
	}
	path := "/apis/actions.github.com/v1alpha1/namespaces/" + url.PathEscape(namespace) + "/ephemeralrunners"
	// The server ends the watch; a connection that has died does not.
	ctx, cancel := context.WithTimeout(ctx, watchTime+time.Minute)
	defer cancel()
	resp, err := c.get(ctx, path, q)
	if err != nil {
		return fmt.Errorf("watch runner %s in %s: %w", name, namespace, err)
	}
	defer resp.Body.Close()
	if err := follow(resp.Body, namespace, name, fn); err != nil {
		if ctx.Err() == nil || errors.Is(err, cimeter.ErrNotFound) {
			return fmt.Errorf("watch runner %s in %s: %w", name, namespace, err)
		}
		return ctx.Err()
	}
	return nil
}

// get makes one request.
func (c *Client) get(ctx context.Context, path string, q url.Values) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+path+"?"+q.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("request: %w", cimeter.ErrInvalid)
	}
	r.Header.Set("Accept", "application/json")
	if c.o.TokenFile != "" {
		token, err := readToken(c.o.TokenFile)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxError))
	var s status
	_ = json.Unmarshal(b, &s) // the code tells enough
	return nil, refusal(resp.StatusCode, s.Reason)
}

// refusal maps a code of HTTP, and of an event of a watch.
func refusal(code int, reason string) error {
	var is error
	switch code {
	case http.StatusNotFound, http.StatusGone:
		is = cimeter.ErrNotFound
	case http.StatusUnauthorized, http.StatusForbidden:
		is = cimeter.ErrUnauthorized
	case http.StatusTooManyRequests:
		is = cimeter.ErrUnavailable
	default:
		is = cimeter.ErrInvalid
		if code >= 500 {
			is = cimeter.ErrUnavailable
		}
	}
	return fmt.Errorf("answer %d %.100q: %w", code, reason, is)
}

// readToken reads a service account's token.
func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("token of the API server: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return "", fmt.Errorf("token of the API server: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if token == "" || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", fmt.Errorf("token of the API server: %s: want one line of characters: %w", path, cimeter.ErrInvalid)
	}
	return token, nil
}

// follow reads the events of a watch: one JSON object a line.
func follow(r io.Reader, namespace, name string, fn func(github.Ephemeral)) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxEvent)
	for lines.Scan() {
		line := lines.Bytes()
		if len(line) == 0 {
			continue
		}
		e, gone, err := parseEvent(line, namespace, name)
		if err != nil {
			return err
		}
		if gone {
			return fmt.Errorf("it is deleted: %w", cimeter.ErrNotFound)
		}
		if e != nil {
			fn(*e)
		}
	}
	switch err := lines.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("event of more than %d bytes: %w", maxEvent, cimeter.ErrInvalid)
	case err != nil && !errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: %w", err, cimeter.ErrUnavailable)
	}
	return nil
}

// parseEvent reads one event; nil: it says nothing of the runner.
func parseEvent(line []byte, namespace, name string) (e *github.Ephemeral, gone bool, err error) {
	var event struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(line, &event); err != nil {
		return nil, false, fmt.Errorf("event: %w: want JSON: %w", err, cimeter.ErrInvalid)
	}
	switch event.Type {
	case "ADDED", "MODIFIED", "DELETED":
	case "ERROR":
		var s status
		_ = json.Unmarshal(event.Object, &s) // the code tells enough
		return nil, false, refusal(s.Code, s.Reason)
	default: // BOOKMARK, and what is yet to come
		return nil, false, nil
	}
	var o object
	if err := json.Unmarshal(event.Object, &o); err != nil {
		return nil, false, fmt.Errorf("event: %w: want an EphemeralRunner: %w", err, cimeter.ErrInvalid)
	}
	if o.Metadata.Name != name || o.Metadata.Namespace != namespace {
		return nil, false, nil
	}
	if event.Type == "DELETED" {
		return nil, true, nil
	}
	e = &github.Ephemeral{ConfigURL: o.Spec.ConfigURL, Repository: o.Status.Repository, Job: o.Status.Job, Ref: o.Status.Ref}
	if o.Status.RunID > 0 {
		e.RunID = strconv.FormatInt(o.Status.RunID, 10)
	}
	return e, false, nil
}
