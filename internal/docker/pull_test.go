package docker_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/docker"
	"github.com/cimeter/cimeter/internal/testdocker"
)

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// registry is a stand-in of an image registry that has one image, empty but for a file.
func registry(t *testing.T) http.Handler {
	t.Helper()
	var layer bytes.Buffer
	tw := tar.NewWriter(&layer)
	if err := tw.WriteHeader(&tar.Header{Name: "f", Mode: 0o644, Size: 1}); err != nil {
		t.Fatal(err)
	}
	if _, err := tw.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	config, _ := json.Marshal(map[string]any{"architecture": "amd64", "os": "linux", "config": map[string]any{"Cmd": []string{"/f"}}, "rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer.Bytes())}}})
	manifest, _ := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
		"config": map[string]any{"mediaType": "application/vnd.docker.container.image.v1+json", "size": len(config), "digest": digest(config)},
		"layers": []any{map[string]any{"mediaType": "application/vnd.docker.image.rootfs.diff.tar", "size": layer.Len(), "digest": digest(layer.Bytes())}},
	})
	blobs := map[string][]byte{digest(config): config, digest(layer.Bytes()): layer.Bytes()}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		part := strings.Split(r.URL.Path, "/")
		body := blobs[part[len(part)-1]]
		if strings.Contains(r.URL.Path, "/manifests/") {
			w.Header().Set("Content-Type", "application/vnd.docker.distribution.manifest.v2+json")
			w.Header().Set("Docker-Content-Digest", digest(manifest))
			body = manifest
		}
		if body == nil && r.URL.Path != "/v2/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write(body)
	})
}

// A real engine that pulls an image tells when it was there, by its name and its id.
func TestFollow_pull(t *testing.T) {
	d := testdocker.Start(t, testdocker.Options{})
	l, err := d.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: registry(t)}
	go s.Serve(l)
	defer s.Close()
	c, err := docker.Open(docker.Options{Host: d.Host()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	found := make(chan cimeter.ContainerEvent, 10)
	connected := make(chan struct{})
	go func() {
		_ = c.Follow(ctx, time.Time{}, func() { close(connected) }, func(e cimeter.ContainerEvent) { found <- e })
	}()
	<-connected
	image := l.Addr().String() + "/team/tool:1"
	before := time.Now()
	p, err := d.Client().ImagePull(ctx, image, client.ImagePullOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(p)
	if err != nil || strings.Contains(string(out), `"error"`) {
		t.Fatalf("pull: %v\n%s", err, out)
	}
	select {
	case e := <-found:
		if e.Kind != cimeter.ImagePulled || e.Container.Image != image || !strings.HasPrefix(e.Container.ID, "sha256:") || e.At.Before(before.Add(-time.Second)) || e.At.After(time.Now().Add(time.Second)) {
			t.Errorf("%+v: want the pull of %s", e, image)
		}
	case <-ctx.Done():
		t.Fatal("no event of the pull")
	}
}
