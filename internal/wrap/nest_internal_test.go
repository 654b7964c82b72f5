package wrap

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// tree2 makes a folder that looks like a cgroup v2 mount. Keys are paths of
// files; a cgroup is made by naming any file of it.
func tree2(t *testing.T, files map[string]string) hierarchy {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return hierarchy{unified: true, mount: root}
}

// cg names the files of one cgroup.
func cg(files map[string]string, path, controllers, handed, procs string, more ...string) {
	files[path+"/cgroup.controllers"] = controllers + "\n"
	files[path+"/cgroup.subtree_control"] = handed + "\n"
	files[path+"/cgroup.procs"] = strings.ReplaceAll(procs, " ", "\n")
	if path != "" && path != "." {
		files[path+"/cgroup.type"] = "domain\n"
	}
	for i := 0; i+1 < len(more); i += 2 {
		files[path+"/"+more[i]] = more[i+1]
	}
}

func TestChooseParent(t *testing.T) {
	self := strconv.Itoa(os.Getpid())
	all := []string{"memory", "io", "pids"}
	for name, c := range map[string]struct {
		make func(map[string]string)
		own  string
		want string
		with []string
	}{
		"the root hands on what it has": {
			make: func(f map[string]string) { cg(f, ".", "cpu io memory pids", "", "1 2 "+self) },
			own:  "/", want: "/", with: all,
		},
		"a delegated scope with this process alone": {
			make: func(f map[string]string) {
				cg(f, ".", "cpu io memory pids", "cpu io memory pids", "")
				cg(f, "u.scope", "memory pids", "", self)
			},
			own: "/u.scope", want: "/u.scope", with: []string{"memory", "pids"},
		},
		"a scope shared with others: beside it": {
			make: func(f map[string]string) {
				cg(f, ".", "cpu io memory pids", "cpu io memory pids", "")
				cg(f, "s", "io memory pids", "io memory pids", "")
				cg(f, "s/u.scope", "io memory pids", "", "1 "+self, "memory.max", "max\n", "cpu.max", "max 100000\n")
			},
			own: "/s/u.scope", want: "/s", with: all,
		},
		"not out of a memory limit": {
			make: func(f map[string]string) {
				cg(f, ".", "io memory pids", "io memory pids", "")
				cg(f, "u.scope", "io memory pids", "", "1 "+self, "memory.max", "1073741824\n")
			},
			own: "/u.scope", want: "/u.scope",
		},
		"inside the command of a run: beside it": {
			make: func(f map[string]string) {
				cg(f, ".", "io memory pids", "io memory pids", "")
				cg(f, "cimeter-run-1-2-3", "io memory pids", "io memory pids", "")
				cg(f, "cimeter-run-1-2-3/main", "io memory pids", "", "1 "+self)
			},
			own: "/cimeter-run-1-2-3/main", want: "/cimeter-run-1-2-3", with: all,
		},
		"nothing of its own, a parent that can": {
			make: func(f map[string]string) {
				cg(f, ".", "io memory pids", "io memory pids", "")
				cg(f, "u", "io memory pids", "", "")
				cg(f, "u/a", "", "", "1 "+self)
			},
			own: "/u/a", want: "/u", with: all,
		},
		"memory further up wins over pids here": {
			make: func(f map[string]string) {
				cg(f, ".", "io memory pids", "io memory pids", "")
				cg(f, "u", "pids", "pids", "")
				cg(f, "u/a", "pids", "", "1 "+self)
			},
			own: "/u/a", want: "/", with: all,
		},
		"beside the inner cgroup of a run around that has no controllers": {
			make: func(f map[string]string) {
				cg(f, ".", "io memory pids", "io memory pids", "")
				cg(f, "cimeter-run-1-2-3", "", "", "")
				cg(f, "cimeter-run-1-2-3/main", "", "", "1 "+self)
			},
			own: "/cimeter-run-1-2-3/main", want: "/cimeter-run-1-2-3",
		},
		"no controllers at all": {
			make: func(f map[string]string) { cg(f, ".", "", "", self); cg(f, "a", "", "", self) },
			own:  "/a", want: "/a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{}
			c.make(files)
			h := tree2(t, files)
			h.path = c.own
			dir, with := chooseParent(h)
			if want := filepath.Join(h.mount, c.want); dir != want || !slices.Equal(with, c.with) {
				t.Errorf("got %s %v, want %s %v", dir, with, want, c.with)
			}
		})
	}
}

func TestMakeNest(t *testing.T) {
	v1 := func(t *testing.T, names ...string) (hs []hierarchy) {
		for _, n := range names {
			hs = append(hs, hierarchy{controllers: strings.Split(n, ","), mount: t.TempDir(), path: "/"})
		}
		return hs
	}
	t.Run("v1: one in each hierarchy", func(t *testing.T) {
		hs := v1(t, "cpu,cpuacct", "memory")
		if err := os.Mkdir(filepath.Join(hs[1].mount, "job"), 0o755); err != nil {
			t.Fatal(err)
		}
		hs[1].path = "/job"
		n, err := makeNest(hs, "cimeter-run-9-a-b")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := n.paths(), []string{"/cimeter-run-9-a-b", "/job/cimeter-run-9-a-b"}; !reflect.DeepEqual(got, want) {
			t.Errorf("paths %v, want %v", got, want)
		}
		if !n.has("memory") || n.has("pids") || !n.countsCPU() {
			t.Errorf("has memory %v, pids %v, counts CPU %v; want true, false, true", n.has("memory"), n.has("pids"), n.countsCPU())
		}
		n.remove()
		for _, h := range hs {
			if m, _ := filepath.Glob(filepath.Join(h.dir(), "*run*")); len(m) > 0 {
				t.Errorf("left behind: %v", m)
			}
		}
	})
	t.Run("without CPU time there is none, and nothing is left", func(t *testing.T) {
		hs := v1(t, "memory", "cpuacct")
		hs[1].path = "/not/there"
		n, err := makeNest(hs, "cimeter-run-9-a-b")
		if err == nil || n != nil {
			t.Fatalf("got %v, want an error", n)
		}
		if !strings.Contains(err.Error(), "no such file or directory") || strings.Contains(err.Error(), hs[0].mount) {
			t.Errorf("error %q: want the reason and no path", err)
		}
		if m, _ := filepath.Glob(filepath.Join(hs[0].mount, "*")); len(m) > 0 {
			t.Errorf("left behind: %v", m)
		}
	})
	t.Run("hybrid: a unified cgroup cannot stand in for cpuacct", func(t *testing.T) {
		files := map[string]string{}
		cg(files, ".", "", "", "")
		u := tree2(t, files)
		u.path = "/"
		hs := append(v1(t, "cpuacct"), u)
		hs[0].path = "/not/there"
		if _, err := makeNest(hs, "cimeter-run-9-a-b"); err == nil {
			t.Error("want an error")
		}
	})
}

func TestMaker(t *testing.T) {
	for name, want := range map[string]int{
		"cimeter-run-12-ab-cd": 12, "cimeter-run-12-ab-cd-self": 12, "cimeter-run-12-ac-cd": 0, "cimeter-run-12": 0,
		"cimeter-run-x-ab-cd": 0, "cimeter-run--1-ab-cd": 0, "docker-12-ab-cd": 0, "": 0,
	} {
		if got, ok := maker(name, 0xab); got != want && ok || ok != (want > 0) {
			t.Errorf("maker(%q) = %d, %v; want %d", name, got, ok, want)
		}
	}
	if n := nestName(77, 0xab); n == nestName(77, 0xab) {
		t.Errorf("two equal names %s", n)
	} else if pid, ok := maker(n, 0xab); !ok || pid != 77 {
		t.Errorf("maker(%s) = %d, %v", n, pid, ok)
	}
}
