package agent

import (
	"strings"
	"testing"
	"time"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/cgroup"
)

func TestHasSocket(t *testing.T) {
	for source, want := range map[string]bool{
		"/var/run/docker.sock": true, "/run/docker.sock": true, "/srv/d/docker.sock": true, "/run/user/1000/podman/podman.sock": true,
		"/run/containerd/containerd.sock": true, "/run/buildkit/buildkitd.sock": true, "/run/": true, "/": true, "/var/run": true, "/run/podman": true,
		"/builds": false, "/var/lib/docker": false, "/var/run/docker.sock.d": false, "/run/udev": false, "/srv/mysql.sock": false, "": false,
	} {
		if got := hasSocket([]cimeter.Mount{{Source: "/cache"}, {Source: source}}); got != want {
			t.Errorf("%q: %v, want %v", source, got, want)
		}
	}
	if hasSocket([]cimeter.Mount{{Source: "/var/lib/docker/volumes/docker.sock", Volume: "docker.sock"}}) {
		t.Error("a volume is no socket, whatever its name")
	}
}

// Whose something is that was made beside builds: the best evidence that speaks for
// one of the candidates alone.
func TestMeter_whose(t *testing.T) {
	now := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
	host, err := cgroup.Open(cgroup.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	empty, err := host.Group("/")
	if err != nil {
		t.Fatal(err)
	}
	empty.Close() // nobody is in it: no client runs
	of := func(id, key string, socket bool, change func(*known)) *known {
		k := &known{id: id, stand: ours, socket: socket, running: &live{born: now.Add(-time.Minute), path: "/docker/" + id, group: empty}}
		k.identity.Build.Key = key
		if change != nil {
			change(k)
		}
		return k
	}
	first := of("a1", "a", true, func(k *known) {
		k.container.Networks, k.volumes = []string{"bridge", "net-a"}, []string{"cache", "v-a"}
	})
	second := of("b1", "b", true, func(k *known) {
		k.container.Networks, k.volumes = []string{"bridge", "net-b"}, []string{"cache", "v-b"}
	})
	without := of("c1", "c", false, func(k *known) { k.container.Networks, k.volumes = []string{"net-c"}, []string{"v-c"} })
	inSlot := of("d1", "d", true, func(k *known) {
		k.container.CgroupParent, k.running.path = "/runner/slot-1", "/runner/slot-1/d1"
	})
	for name, c := range map[string]struct {
		known []*known
		held  []hold
		at    time.Time
		what  *known
		path  string
		want  beside
	}{
		"nobody has a socket":      {known: []*known{without}, what: &known{}, want: beside{}},
		"one alone":                {known: []*known{first, without}, what: &known{}, want: beside{"a", cimeter.AttributedSole}},
		"a step, one alone":        {known: []*known{first}, path: "/docker/buildkit/x", want: beside{"a", cimeter.AttributedSole}},
		"one of two":               {known: []*known{first, second}, what: &known{}, want: beside{"", cimeter.Unattributed}},
		"before it ran":            {known: []*known{first}, at: now.Add(-time.Hour), what: &known{}, want: beside{}},
		"by network":               {known: []*known{first, second}, what: &known{container: cimeter.Container{Networks: []string{"bridge", "net-b"}}}, want: beside{"b", cimeter.AttributedNetwork}},
		"the usual network":        {known: []*known{first, second}, what: &known{container: cimeter.Container{Networks: []string{"bridge"}}}, want: beside{"", cimeter.Unattributed}},
		"in a container's network": {known: []*known{first, second}, what: &known{container: cimeter.Container{NetworkMode: "container:a1"}}, want: beside{"a", cimeter.AttributedNetwork}},
		"by volume":                {known: []*known{first, second}, what: &known{volumes: []string{"v-b"}}, want: beside{"b", cimeter.AttributedVolume}},
		"a volume of both":         {known: []*known{first, second}, what: &known{volumes: []string{"cache"}}, want: beside{"", cimeter.Unattributed}},
		"network before volume":    {known: []*known{first, second}, what: &known{volumes: []string{"v-a"}, container: cimeter.Container{Networks: []string{"net-b"}}}, want: beside{"b", cimeter.AttributedNetwork}},
		"of one without a socket":  {known: []*known{first, second, without}, what: &known{volumes: []string{"v-c"}}, want: beside{"", cimeter.Unattributed}},
		"by its cgroup's parent":   {known: []*known{first, inSlot}, what: &known{}, path: "/runner/slot-1/x", want: beside{"d", cimeter.AttributedCgroupParent}},
		"a step by its parent":     {known: []*known{first, inSlot}, path: "/runner/slot-1/buildkit/" + strings.Repeat("x", 25), want: beside{"d", cimeter.AttributedCgroupParent}},
		"a step, one of two":       {known: []*known{first, second}, path: "/docker/buildkit/x", want: beside{"", cimeter.Unattributed}},
		"a step, no client":        {known: []*known{without}, path: "/docker/buildkit/x", want: beside{}},
		"ended a moment ago":       {held: []hold{{"e", now.Add(-time.Minute), now.Add(time.Millisecond)}}, what: &known{}, want: beside{"e", cimeter.AttributedSole}},
		"ended before":             {held: []hold{{"e", now.Add(-time.Minute), now.Add(-time.Second)}}, what: &known{}, want: beside{}},
	} {
		m := &meter{Agent: &Agent{}, known: map[string]*known{}, held: c.held}
		for _, k := range c.known {
			m.known[k.id] = k
		}
		if c.at.IsZero() {
			c.at = now
		}
		if got := m.whose(c.at, c.what, c.path); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
