package deploy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/cimeter/cimeter/internal/testtools"
)

// resources are where the API server takes the kinds of the chart.
var resources = map[string]string{
	"ConfigMap":             "/api/v1/namespaces/default/configmaps",
	"Service":               "/api/v1/namespaces/default/services",
	"PersistentVolumeClaim": "/api/v1/namespaces/default/persistentvolumeclaims",
	"DaemonSet":             "/apis/apps/v1/namespaces/default/daemonsets",
	"Deployment":            "/apis/apps/v1/namespaces/default/deployments",
	"ServiceAccount":        "/api/v1/namespaces/default/serviceaccounts",
	"ClusterRole":           "/apis/rbac.authorization.k8s.io/v1/clusterroles",
	"ClusterRoleBinding":    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
	"ServiceMonitor":        "/apis/monitoring.coreos.com/v1/namespaces/default/servicemonitors",
	"PodMonitor":            "/apis/monitoring.coreos.com/v1/namespaces/default/podmonitors",
	"PrometheusRule":        "/apis/monitoring.coreos.com/v1/namespaces/default/prometheusrules",
}

// strict is a dry run in which a field that the server does not know is an error.
const strict = "?dryRun=All&fieldValidation=Strict"

// A real kube-apiserver takes every object of the chart, whatever the values are,
// by a strict dry run; those of the Prometheus operator by its own definitions.
func TestChartOnAPIServer(t *testing.T) {
	k := testtools.StartKubeAPI(t)
	for _, name := range []string{"servicemonitors", "podmonitors", "prometheusrules"} {
		defineResource(t, k, name)
	}
	tried := map[string]int{}
	for _, c := range charts {
		t.Run(c.name, func(t *testing.T) {
			for name, o := range rendered(t, c.values...) {
				kind := o.at("kind").(string)
				tried[kind]++
				if resources[kind] == "" {
					t.Errorf("%s: no test knows where the API server takes it", name)
				} else if status, answer := k.Ask(t, http.MethodPost, resources[kind]+strict, o); status != http.StatusCreated {
					t.Errorf("%s: status %d: %s", name, status, message(answer))
				}
			}
		})
	}
	for kind := range resources {
		if tried[kind] == 0 {
			t.Errorf("no value makes a %s", kind)
		}
	}

	secretsByPage(t, k)
	_, line, ok := strings.Cut(strings.ReplaceAll(readFile(t, "../docs/install.md"), "\\\n", " "), "\nhelm install ")
	if !ok {
		t.Fatal("docs/install.md has no helm install")
	}
	line, _, _ = strings.Cut(line, "\n")
	helmInstall(t, k, root, "install "+line, resources["DaemonSet"]+"/ci-agent")
	for _, page := range []string{"gitlab-kubernetes", "kubernetes"} {
		t.Run(page, func(t *testing.T) { installByPage(t, k, page) })
	}

	// The server would have found what is wrong.
	o := rendered(t)["Deployment/ci-server"]
	o.at("spec").(map[string]any)["replica"] = 1
	if status, answer := k.Ask(t, http.MethodPost, resources["Deployment"]+strict, o); status != http.StatusBadRequest || !strings.Contains(message(answer), "spec.replica") {
		t.Errorf("an unknown field: status %d, %s: want it refused", status, message(answer))
	}
	m := rendered(t, "serviceMonitor.enabled=true")["ServiceMonitor/ci-server"]
	m.at("spec").(map[string]any)["endpoint"] = 1
	if status, answer := k.Ask(t, http.MethodPost, resources["ServiceMonitor"]+strict, m); status != http.StatusBadRequest || !strings.Contains(message(answer), "spec.endpoint") {
		t.Errorf("an unknown field: status %d, %s: want it refused", status, message(answer))
	}
}

// secretsByPage makes the secrets of docs/install.md, whose files are where the chart's
// programs look for them. kubectl is played: a secret from a file has the file's name
// for its key.
func secretsByPage(t *testing.T, k *testtools.KubeAPI) {
	t.Helper()
	_, block, ok := strings.Cut(readFile(t, "../docs/install.md"), "## In Kubernetes\n")
	_, block, _ = strings.Cut(block, "```sh\n")
	block, _, _ = strings.Cut(block, "```")
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil || !ok {
		t.Fatal(err, ok)
	}
	if err := os.Symlink(program(t), filepath.Join(bin, "cimeter")); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{} // by secret
	for line := range strings.Lines(block) {
		if strings.HasPrefix(line, "cimeter token ") {
			cmd := exec.Command("bash", "-eu", "-c", line)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			output(t, cmd)
		}
		m := regexp.MustCompile(`^kubectl create secret generic (\S+) --from-file (\S+)$`).FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		files[m[1]] = m[2]
		o := object{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": m[1]}, "stringData": map[string]any{m[2]: readFile(t, filepath.Join(dir, m[2]))}}
		if status, answer := k.Ask(t, http.MethodPost, "/api/v1/namespaces/default/secrets?fieldValidation=Strict", o); status != http.StatusCreated {
			t.Errorf("secret %s: status %d: %s", m[1], status, message(answer))
		}
	}
	objects := rendered(t, "server.tokensSecret=cimeter-tokens", "agent.tokenSecret=cimeter-token")
	for secret, at := range map[string][2]string{"cimeter-tokens": {"Deployment/ci-server", "ConfigMap/ci-server"}, "cimeter-token": {"DaemonSet/ci-agent", "ConfigMap/ci-agent"}} {
		mounted := ""
		spec := object(objects[at[0]].at("spec", "template", "spec").(map[string]any))
		for _, v := range spec.at("volumes").([]any) {
			if volume := object(v.(map[string]any)); volume.at("secret", "secretName") == secret {
				for _, m := range spec.at("containers", 0, "volumeMounts").([]any) {
					if mount := object(m.(map[string]any)); mount.at("name") == volume.at("name") {
						mounted = mount.at("mountPath").(string)
					}
				}
			}
		}
		config := fmt.Sprint(objects[at[1]].at("data"))
		if files[secret] == "" || mounted == "" || !strings.Contains(config, mounted+"/"+files[secret]) {
			t.Errorf("secret %s has the file %q, mounted at %q: the configuration does not read it:\n%s", secret, files[secret], mounted, config)
		}
	}
}

// installByPage installs the chart as a page of docs/runners says, with the values
// that stand there, whose configuration cimeter takes.
func installByPage(t *testing.T, k *testtools.KubeAPI, page string) {
	text := readFile(t, "../docs/runners/"+page+".md")
	line := regexp.MustCompile("(?m)^helm (install cimeter .*)$").FindStringSubmatch(text)
	values := regexp.MustCompile("(?s)```yaml\n# values.yaml\n(.*?)```").FindStringSubmatch(text)
	if line == nil || values == nil {
		t.Fatal("no helm install, or no values.yaml")
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "values.yaml"), values[1], 0o644)
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(top, "deploy"), filepath.Join(dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	const object = "/apis/apps/v1/namespaces/cimeter/daemonsets/cimeter-agent"
	helmInstall(t, k, dir, line[1], object)
	helmRun(t, k, dir, "uninstall cimeter --namespace cimeter")
	for _, name := range []string{"agent", "server"} {
		cmd := helm(t, "template", "--values", filepath.Join(dir, "values.yaml"), "--show-only", "templates/"+name+".yaml")
		for _, o := range decoded(t, cmd) {
			if o.at("kind") == "ConfigMap" {
				checkConfig(t, o)
			}
		}
	}
}

// helmInstall runs helm's command and looks for the agent's object.
func helmInstall(t *testing.T, k *testtools.KubeAPI, dir, line, object string) {
	t.Helper()
	if out := helmRun(t, k, dir, line); !strings.Contains(out, "STATUS: deployed") {
		t.Errorf("helm %s: %s", line, out)
	}
	if status, answer := k.Ask(t, http.MethodGet, object, nil); status != http.StatusOK || !bytes.Contains(answer, []byte("registry.example.com/cimeter:")) {
		t.Errorf("the agent's DaemonSet: status %d: %s", status, answer)
	}
}

// helmRun runs helm as an administrator of the server.
func helmRun(t *testing.T, k *testtools.KubeAPI, dir, line string) string {
	t.Helper()
	config := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, config, fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: u, user: {token: %q}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, k.URL, k.CAFile, k.Token), 0o600)
	cmd := exec.Command(testtools.Path(t, testtools.Helm), strings.Fields(line)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=" + t.TempDir(), "KUBECONFIG=" + config}
	return output(t, cmd)
}

// message is what the server says of a request that it refused.
func message(answer []byte) string {
	var s struct{ Message string }
	if err := json.Unmarshal(answer, &s); err != nil || s.Message == "" {
		return string(answer)
	}
	return s.Message
}

// operator is the release of the Prometheus operator whose resources are tried.
const operator = "github.com/prometheus-operator/prometheus-operator@v0.85.0"

// defineResource gives the server a resource of the Prometheus operator and waits until
// it takes objects of it.
func defineResource(t *testing.T, k *testtools.KubeAPI, name string) {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", operator)
	cmd.Dir = t.TempDir() // no module's
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := cmd.Output()
	var module struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &module)
	}
	if err != nil {
		t.Fatalf("go mod download %s: %v\n%s", operator, err, out)
	}
	text := readFile(t, filepath.Join(module.Dir, "example", "prometheus-operator-crd", "monitoring.coreos.com_"+name+".yaml"))
	var definition map[string]any
	if err := yaml.NewDecoder(bytes.NewReader([]byte(text))).Decode(&definition); err != nil {
		t.Fatal(err)
	}
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if status, answer := k.Ask(t, http.MethodPost, path, definition); status != http.StatusCreated {
		t.Fatalf("definition of %s: status %d: %s", name, status, message(answer))
	}
	eventually(t, name+" is established", func() error {
		status, answer := k.Ask(t, http.MethodGet, "/apis/monitoring.coreos.com/v1/namespaces/default/"+name, nil)
		if status != http.StatusOK {
			return fmt.Errorf("status %d: %s", status, message(answer))
		}
		return nil
	})
}
