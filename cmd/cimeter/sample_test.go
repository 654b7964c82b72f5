package main

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

var pageOf = regexp.MustCompile(`its page: (http://(\S+?)/builds/\S+)`)

// startSample runs what "make run" does, with a Go that does nothing.
func startSample(t *testing.T, env ...string) (cmd *exec.Cmd, out *bufio.Scanner, tmp string) {
	t.Helper()
	program, err := exec.LookPath("cimeter") // this test binary, by TestMain
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	tmp = t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "go"), []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd = exec.Command("../../scripts/sample-build.sh", program)
	cmd.Env = append(os.Environ(), append([]string{"PATH=" + bin + ":" + os.Getenv("PATH"), "TMPDIR=" + tmp}, env...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	return cmd, bufio.NewScanner(pipe), tmp
}

// left tells what the sample build has left behind.
func left(t *testing.T, tmp, address string) {
	t.Helper()
	if files, err := os.ReadDir(tmp); err != nil || len(files) > 0 {
		t.Errorf("left behind: %v, %v", files, err)
	}
	if resp, err := http.Get("http://" + address + "/healthz"); err == nil {
		resp.Body.Close()
		t.Error("the server is left running")
	}
}

// Without a terminal the sample build ends by itself, and its server with it.
func TestSampleBuild(t *testing.T) {
	cmd, out, tmp := startSample(t)
	var log strings.Builder
	for out.Scan() {
		log.WriteString(out.Text() + "\n")
	}
	err := cmd.Wait()
	m := pageOf.FindStringSubmatch(log.String())
	if err != nil || m == nil || !strings.Contains(log.String(), "compile") {
		t.Fatalf("%v: want a summary and the address of a page in\n%s", err, log.String())
	}
	left(t, tmp, m[2])
}

// With KEEP=1 the page is there until Ctrl-C.
func TestSampleBuild_Keep(t *testing.T) {
	cmd, out, tmp := startSample(t, "KEEP=1")
	var log strings.Builder
	var m []string
	for out.Scan() {
		log.WriteString(out.Text() + "\n")
		if found := pageOf.FindStringSubmatch(out.Text()); found != nil {
			m = found
		}
		if strings.Contains(out.Text(), "until Ctrl-C") {
			break
		}
	}
	if m == nil {
		_ = cmd.Wait()
		t.Fatalf("no page in\n%s", log.String())
	}
	resp, err := http.Get(m[1])
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(page), "compile") {
		t.Errorf("%d, %v: want a page with the stage compile", resp.StatusCode, err)
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil { // as a terminal does
		t.Fatal(err)
	}
	for out.Scan() {
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 {
		t.Errorf("exit code %d: want 130", code)
	}
	left(t, tmp, m[2])
}
