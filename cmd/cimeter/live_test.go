package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cimeter/cimeter/internal/httpapi"
	"github.com/cimeter/cimeter/internal/terminal"
)

// faulty is a view that panics where it is told to, once a key was pressed.
type faulty struct {
	where   string
	pressed atomic.Bool
}

func (f *faulty) at(where string) {
	if f.where == where && f.pressed.Load() {
		panic("injected into " + where)
	}
}

func (f *faulty) Press(terminal.Key) bool {
	f.pressed.Store(true)
	f.at("press")
	return false
}

func (f *faulty) Fail(string, time.Time) { f.at("fail") }

func (f *faulty) Frame(int, int, time.Time) string {
	f.at("frame")
	return "\x1b[Hready"
}

func (f *faulty) read(context.Context) (func(), error) {
	f.at("read")
	if f.where == "fail" {
		return nil, errors.New("away")
	}
	return func() { f.at("show") }, nil
}

// panicking is a program: a live table that panics where its argument says.
func panicking() {
	f := &faulty{where: os.Args[1]}
	s, err := openScreen(os.Stdin, os.Stdout)
	if err != nil {
		panic(err)
	}
	if f.where == "keys" {
		s.keys = func([]byte) []terminal.Key { panic("injected into keys") }
	}
	fmt.Println(live(s, f, 50*time.Millisecond, f.read))
}

// Whichever goroutine panics, the terminal is as it was before the panic is told on
// it, with the place where it was.
func TestLive_Panic(t *testing.T) {
	for where, place := range map[string]string{
		"press": "(*faulty).Press", "frame": "(*faulty).Frame", "show": "(*faulty).read", "fail": "(*faulty).Fail", // the goroutine that draws
		"read": "(*faulty).read", "keys": "(*screen).readKeys",
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			p := terminalOf(t).start(nil, "panicking", where)
			p.see(terminal.Begin)
			p.see("ready")
			p.press("x")
			p.ended(2)
			p.see("panic: injected into " + where)
			p.see(place)
		})
	}
}

// frames is a view that notes when each frame is drawn.
type frames struct {
	drawn chan time.Time
	text  string
}

func (f *frames) Press(k terminal.Key) bool { return k == 'q' }

func (f *frames) Fail(string, time.Time) {}

func (f *frames) Frame(_, _ int, now time.Time) string {
	f.drawn <- now
	return "\x1b[H" + f.text
}

// However much comes in, there are at most four frames a second, and each is one write:
// a terminal that takes packets (socketpair(2)) sees each as one.
func TestLive_Frames(t *testing.T) {
	p := terminalOf(t)
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET, 0)
	if err != nil {
		t.Fatal(err)
	}
	out, sees := os.NewFile(uintptr(pair[0]), "out"), os.NewFile(uintptr(pair[1]), "sees")
	defer out.Close()
	defer sees.Close()
	s, err := openScreen(p.tty, p.tty)
	if err != nil {
		t.Fatal(err)
	}
	s.out = out
	const count = 6
	f := &frames{drawn: make(chan time.Time, 100), text: strings.Repeat("x", 20_000)} // more than a screen of 250 by 80
	ended := make(chan error)
	go func() {
		ended <- live(s, f, time.Millisecond, func(context.Context) (func(), error) { return func() {}, nil })
	}()
	b := make([]byte, 64<<10)
	for i, want := range append([]int{len(terminal.Begin)}, slices.Repeat([]int{len("\x1b[H") + len(f.text)}, count)...) {
		p.press("x")
		if n, err := sees.Read(b); err != nil || n != want {
			t.Fatalf("write %d: %d bytes, %v: want %d, a whole frame", i, n, err, want)
		}
	}
	p.press("q")
	go io.Copy(io.Discard, sees)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for last := <-f.drawn; len(f.drawn) > 0; {
		next := <-f.drawn
		if next.Sub(last) < minFrame {
			t.Errorf("%s between two frames: want %s or more", next.Sub(last), minFrame)
		}
		last = next
	}
}

// A source that goes away is named in the header, with how long; its last state stays.
func TestTop_Away(t *testing.T) {
	var away atomic.Bool
	h := httpapi.New(httpapi.Options{Running: runs})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if away.Load() {
			http.Error(w, "no", http.StatusBadGateway)
			return
		}
		h.ServeHTTP(w, r)
	}))
	defer server.Close()
	p := terminalOf(t).start(nil, "cimeter", "top", "--server", server.URL, "--interval", "250ms")
	p.see("1 running")
	away.Store(true)
	p.see("server away ")
	p.see("s, showing last state")
	p.see("!100") // the build
	away.Store(false)
	p.see("1 running")
	p.press("/q\r") // types a q
	p.see("filter: q")
	p.press("\x1b")
	p.see("? keys")
	p.press("q")
	p.ended(0)
}
