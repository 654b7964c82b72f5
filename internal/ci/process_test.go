package ci_test

import (
	"strings"
	"testing"

	"github.com/cimeter/cimeter"
	"github.com/cimeter/cimeter/internal/ci"
)

func TestFirstProcess(t *testing.T) {
	of := func(key string) ci.ProcessIdentifier {
		return func(env map[string]string) (id cimeter.Identity, ok bool) {
			id.Build.Key, id.Build.Name = key, env["NAME"]
			return id, env[key] != ""
		}
	}
	identify := ci.FirstProcess(of("A"), of("B"), of(strings.Repeat("k", 3000)))
	if id, ok := identify(map[string]string{"A": "1", "B": "1"}); !ok || id.Build.Key != "A" {
		t.Errorf("%+v, %v, want the first", id, ok)
	}
	if id, ok := identify(map[string]string{"B": "1", "NAME": strings.Repeat("n", 3000)}); !ok || id.Build.Key != "B" || len(id.Build.Name) > 600 {
		t.Errorf("%+v, %v, want the second, cut", id, ok)
	}
	if id, ok := identify(map[string]string{strings.Repeat("k", 3000): "1"}); ok {
		t.Errorf("a key of 3000 bytes is taken: %.20s", id.Build.Key)
	}
	if _, ok := identify(nil); ok {
		t.Error("no variables are a build's")
	}
}
