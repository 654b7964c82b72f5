package deploy_test

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cimeter/cimeter/internal/testtools"
)

// helm returns a command of helm on the chart. Its own idea of a cluster is an
// old one.
func helm(t *testing.T, command string, args ...string) *exec.Cmd {
	t.Helper()
	line := []string{command}
	if command == "template" {
		line = append(line, "ci")
	}
	cmd := exec.Command(testtools.Path(t, testtools.Helm), append(append(line, "helm/cimeter", "--kube-version", "1.34.0"), args...)...)
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir()}
	return cmd
}

// object is an object of Kubernetes.
type object map[string]any

func (o object) at(path ...any) any {
	var v any = map[string]any(o)
	for _, p := range path {
		switch p := p.(type) {
		case string:
			m, ok := v.(map[string]any)
			if !ok {
				return nil
			}
			v = m[p]
		case int:
			l, ok := v.([]any)
			if !ok || p >= len(l) {
				return nil
			}
			v = l[p]
		}
	}
	return v
}

// rendered are the chart's objects by kind and name.
func rendered(t *testing.T, values ...string) map[string]object {
	t.Helper()
	var args []string
	for _, v := range values {
		args = append(args, "--set", v)
	}
	objects := map[string]object{}
	for _, o := range decoded(t, helm(t, "template", args...)) {
		name := o.at("kind").(string) + "/" + o.at("metadata", "name").(string)
		if objects[name] != nil {
			t.Fatalf("two objects %s", name)
		}
		objects[name] = o
	}
	return objects
}

// decoded are the objects that a command of helm prints.
func decoded(t *testing.T, cmd *exec.Cmd) (objects []object) {
	t.Helper()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, stderr.String())
	}
	for d := yaml.NewDecoder(bytes.NewReader(out)); ; {
		var o map[string]any // a type of ours would be that of every map below
		switch err := d.Decode(&o); {
		case errors.Is(err, io.EOF):
			return objects
		case err != nil:
			t.Fatalf("helm template: %v\n%s", err, out)
		case o != nil:
			objects = append(objects, o)
		}
	}
}

// checkConfig has cimeter check the configurations of a ConfigMap.
func checkConfig(t *testing.T, o object) {
	t.Helper()
	for file, text := range o.at("data").(map[string]any) {
		path := filepath.Join(t.TempDir(), file)
		write(t, path, text.(string), 0o644)
		if out := output(t, exec.Command(program(t), "check", "--config", path)); !strings.HasPrefix(out, "configuration  ok") {
			t.Errorf("%v: cimeter check: %s", o.at("metadata", "name"), out)
		}
	}
}

func names(objects map[string]object) []string {
	var names []string
	for name := range objects {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// charts are the chart's values that make a difference, and the objects of each.
var charts = []struct {
	name   string
	values []string
	want   []string
}{
	{
		"defaults", nil,
		[]string{"ConfigMap/ci-agent", "ConfigMap/ci-server", "DaemonSet/ci-agent", "Deployment/ci-server", "PersistentVolumeClaim/ci-server", "Service/ci-server"},
	},
	{
		"PostgreSQL", []string{"server.store=postgresql", "server.databaseSecret=db", "server.replicas=2", "server.tokensSecret=tokens", "agent.tokenSecret=token"},
		[]string{"ConfigMap/ci-agent", "ConfigMap/ci-server", "DaemonSet/ci-agent", "Deployment/ci-server", "Service/ci-server"},
	},
	{
		"Docker", []string{"agent.runtime=docker", "agent.socket=/var/run/docker.sock", "agent.socketGroup=999", "agent.jobFolder=/run/cimeter"},
		[]string{"ConfigMap/ci-agent", "ConfigMap/ci-server", "DaemonSet/ci-agent", "Deployment/ci-server", "PersistentVolumeClaim/ci-server", "Service/ci-server"},
	},
	{
		"Actions Runner Controller", []string{"server.enabled=false", "agent.runnerJobs=true"},
		[]string{"ClusterRole/ci-default-agent", "ClusterRoleBinding/ci-default-agent", "ConfigMap/ci-agent", "DaemonSet/ci-agent", "ServiceAccount/ci-agent"},
	},
	{
		"agents alone", []string{"server.enabled=false", "agent.serverURL=https://cimeter.example.com", "agent.tokenSecret=token", "agent.config.pool=large"},
		[]string{"ConfigMap/ci-agent", "DaemonSet/ci-agent"},
	},
	{
		"Prometheus operator", []string{"serviceMonitor.enabled=true", "serviceMonitor.tokenSecret=read", "prometheusRule.enabled=true"},
		[]string{
			"ConfigMap/ci-agent", "ConfigMap/ci-server", "DaemonSet/ci-agent", "Deployment/ci-server", "PersistentVolumeClaim/ci-server",
			"PodMonitor/ci-agent", "PrometheusRule/ci", "Service/ci-server", "ServiceMonitor/ci-server",
		},
	},
}

// The chart has what its values ask for; every program has the configuration
// that it takes, and no right that it needs not.
func TestChart(t *testing.T) {
	if out := output(t, helm(t, "lint", "--strict")); !strings.Contains(out, "0 chart(s) failed") {
		t.Errorf("helm lint: %s", out)
	}
	for _, c := range charts {
		t.Run(c.name, func(t *testing.T) {
			objects := rendered(t, c.values...)
			if got := names(objects); !slices.Equal(got, c.want) {
				t.Fatalf("objects %v: want %v", got, c.want)
			}
			for name, o := range objects {
				switch o.at("kind") {
				case "ConfigMap":
					checkConfig(t, o)
				case "DaemonSet", "Deployment":
					leastRights(t, name, o)
				}
			}
			if o := objects["PrometheusRule/ci"]; o != nil {
				var want struct{ Groups []any }
				if err := yaml.Unmarshal([]byte(readFile(t, "prometheus/cimeter.rules.yml")), &want); err != nil {
					t.Fatal(err)
				}
				if !reflect.DeepEqual(o.at("spec", "groups"), want.Groups) {
					t.Error("the rules are not those of deploy/prometheus")
				}
			}
		})
	}
}

// leastRights fails the test when a workload's pods may more than they need, or
// mount what they do not have.
func leastRights(t *testing.T, name string, o object) {
	t.Helper()
	pod, _ := o.at("spec", "template", "spec").(map[string]any)
	p := object(pod)
	for path, want := range map[string]any{"runAsNonRoot": true, "runAsUser": 65532} {
		if got := p.at("securityContext", path); got != want {
			t.Errorf("%s: %s is %v: want %v", name, path, got, want)
		}
	}
	// Only who has an account of its own, with rights of its own, has its token.
	if own := p.at("serviceAccountName") != nil; p.at("automountServiceAccountToken") != own {
		t.Errorf("%s has a token for the API server: %v", name, p.at("automountServiceAccountToken"))
	}
	for path, want := range map[string]any{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "privileged": nil} {
		if got := p.at("containers", 0, "securityContext", path); got != want {
			t.Errorf("%s: %s is %v: want %v", name, path, got, want)
		}
	}
	if got := p.at("containers", 0, "securityContext", "capabilities"); !reflect.DeepEqual(got, map[string]any{"drop": []any{"ALL"}}) {
		t.Errorf("%s: capabilities %v: want none", name, got)
	}
	if o.at("kind") == "Deployment" && (p.at("hostPID") != nil || p.at("hostNetwork") != nil) {
		t.Errorf("%s is in the namespaces of the node", name)
	}
	has := map[any]bool{}
	for _, v := range p.at("volumes").([]any) {
		has[object(v.(map[string]any)).at("name")] = true
	}
	for _, m := range p.at("containers", 0, "volumeMounts").([]any) {
		if mount := object(m.(map[string]any)); !has[mount.at("name")] {
			t.Errorf("%s mounts %v, which is no volume of it", name, mount.at("name"))
		}
	}
	labels, _ := o.at("spec", "template", "metadata", "labels").(map[string]any)
	for key, want := range o.at("spec", "selector", "matchLabels").(map[string]any) {
		if labels[key] != want {
			t.Errorf("%s selects %s=%v, which its pods do not have", name, key, want)
		}
	}
}

// What cannot work is refused before anything is there, and says why.
func TestChartRefuses(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{"server.store=postgresql", "server.databaseSecret"},
		{"server.replicas=2", "server.replicas: want 1"},
		{"server.store=mysql", "server.store"},
		{"agent.socket=docker.sock", "agent.socket"},
		{"agent.runtime=rkt", "agent.runtime"},
		{"agent.jobFolder=cimeter", "agent.jobFolder"},
	} {
		out, err := helm(t, "template", "--set", c.values).CombinedOutput()
		if err == nil || !strings.Contains(strings.ReplaceAll(string(out), "/", "."), c.want) {
			t.Errorf("%s: %v, %s: want a refusal with %q", c.values, err, out, c.want)
		}
	}
}
