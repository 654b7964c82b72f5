package e2e_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
)

// podsAgentStopped stops the agent and has more happen to containers than containerd
// keeps for one who does not read: they must all begin, end and go, and when the agent
// goes on it knows of those that come then.
func podsAgentStopped(t *testing.T, n *node) {
	// Four events each. A hundred wait in containerd's queue, and as each event tells
	// of all containers of its pod with their labels, ten fill all other room.
	const count = 32
	labels := map[string]string{}
	for i := range 4 {
		labels[fmt.Sprintf("example.com/padding-%d", i)] = strings.Repeat("x", 4000)
	}
	a := startAgent(t, n, podRules)
	p := n.pod(t, 10, 0, "")
	if err := p.Run(n.spec("before", "cpu=0.01")); err != nil {
		t.Fatal(err)
	}
	a.eventually("it has been told what happens", func() error {
		if n := a.metric("cimeter_agent_engine_events_total", `engine="cri"`, `by="told"`); n == 0 {
			return cimeter.ErrUnavailable
		}
		return nil
	})
	a.pause(func() {
		begun := time.Now()
		var ids []string
		for i := range count {
			s := n.spec(fmt.Sprintf("c-%d", i), "cpu=0.001")
			s.Labels = labels
			id, err := p.Create(s)
			if err != nil {
				t.Fatalf("container %d of %d, %v after the agent was stopped: %v", i, count, time.Since(begun), err)
			}
			ids = append(ids, id)
		}
		// One that waited for the agent would wait until it goes on.
		all := func(do string) {
			t.Helper()
			if _, err := n.Crictl(append([]string{"--timeout", "60s", do}, ids...)...); err != nil {
				t.Fatalf("%v after the agent was stopped: %v", time.Since(begun), err)
			}
			t.Logf("%d containers, %s: %v after the agent was stopped", count, do, time.Since(begun))
		}
		all("start")
		all("stop")
		// A container that ended by itself counts as stopped while containerd still has
		// its end to tell, and until then it may not be removed.
		for _, id := range ids {
			if _, err := n.Wait(id); err != nil {
				t.Fatalf("%v after the agent was stopped: %v", time.Since(begun), err)
			}
		}
		all("rm")
	})
	if err := p.Run(n.spec("after", "cpu=0.01", "exit=0")); err != nil {
		t.Fatal(err)
	}
	used := remove(t, p)
	r := a.await(podKey(10))
	checkPods(t, &r, used, 0)
	for _, name := range []string{"before", "after"} {
		if s := stageOf(&r, name, 1); s == nil || s.ExitCode != cimeter.Some(0) {
			t.Errorf("stage %s: %+v, want exit code 0", name, s)
		}
	}
}

// podEventsOff has a runtime that streams events asked, as the settings say.
func podEventsOff(t *testing.T, n *node) {
	a := startAgent(t, n, strings.Replace(podRules, "agent:\n", "agent:\n  cri_events: off\n", 1))
	p := n.pod(t, 11, 0, "")
	if err := p.Run(n.spec("short", "cpu=0.1")); err != nil {
		t.Fatal(err)
	}
	used := remove(t, p)
	r := a.await(podKey(11))
	checkComplete(t, &r)
	checkPods(t, &r, used, 0)
	if s := stageOf(&r, "short", 1); s == nil || s.ExitCode != cimeter.Some(0) {
		t.Errorf("stage short: %+v, want exit code 0", s)
	}
	checkStreamed(t, &node{}, a)
}
