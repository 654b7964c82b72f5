package testdocker

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	"github.com/moby/moby/client"
)

// Image is the image that every daemon has: static busybox with its links, and
// the files of the options.
const Image = "cimeter-test:1"

// importImage makes Image from a tar that is put together here.
func (d *Daemon) importImage(files, links map[string]string) error {
	var buf bytes.Buffer
	if err := writeImage(&buf, files, links); err != nil {
		return fmt.Errorf("making the image: %w", err)
	}
	name, tag, _ := strings.Cut(Image, ":")
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	r, err := d.client.ImageImport(ctx, client.ImageImportSource{Source: &buf, SourceName: "-"}, name,
		client.ImageImportOptions{Tag: tag, Changes: []string{"ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}})
	if err != nil {
		return fmt.Errorf("importing the image: %w", err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("importing the image: %w", err)
	}
	return nil
}

// Tag gives the image another name.
func (d *Daemon) Tag(ctx context.Context, name string) error {
	_, err := d.client.ImageTag(ctx, client.ImageTagOptions{Source: Image, Target: name})
	if err != nil {
		return fmt.Errorf("tagging the image as %s: %w", name, err)
	}
	return nil
}

func writeImage(w io.Writer, files, links map[string]string) error {
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		return err
	}
	out, err := exec.Command(busybox, "--list").Output()
	if err != nil {
		return fmt.Errorf("listing busybox's applets: %w", err)
	}
	t := tar.NewWriter(w)
	for _, dir := range []string{"bin", "etc", "tmp", "usr", "usr/bin", "proc", "sys", "dev"} {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o777}); err != nil {
			return err
		}
	}
	if err := addFile(t, "/bin/busybox", busybox); err != nil {
		return err
	}
	all := map[string]string{}
	for _, applet := range strings.Fields(string(out)) {
		if applet != "busybox" {
			all["/bin/"+applet] = "/bin/busybox"
		}
	}
	for at, target := range links {
		all[at] = target
	}
	for at := range files {
		delete(all, at)
	}
	for _, at := range sortedKeys(all) {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: strings.TrimPrefix(at, "/"), Linkname: all[at], Mode: 0o777}); err != nil {
			return err
		}
	}
	for _, at := range sortedKeys(files) {
		if err := addFile(t, at, files[at]); err != nil {
			return err
		}
	}
	return t.Close()
}

// addFile puts the executable file src into the image at the path at.
func addFile(t *tar.Writer, at, src string) error {
	b, err := os.ReadFile(src)
	if err != nil {
		return err
	}
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(path.Clean(at), "/"), Mode: 0o755, Size: int64(len(b))}); err != nil {
		return err
	}
	_, err = t.Write(b)
	return err
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
