// Package check holds the Helm chart and the plain manifests against Helm's own library and Kubernetes' types. It is a module of its
// own, so that who builds rdistcc needs neither.
package check

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const chartDir = "../rdistcc"

var update = flag.Bool("update", false, "write the plain manifests")

// options are what a chart is rendered with.
type options struct {
	values     string // YAML, over the chart's own
	kubernetes string // version; "": that of the types in go.mod
}

// current is the version of the types in go.mod.
const current = "v1.37.0"

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// render returns the chart's manifests by the names of their templates.
func render(t *testing.T, o options) (map[string]string, error) {
	t.Helper()
	values, err := chartutil.ReadValues([]byte(o.values))
	if err != nil {
		t.Fatal(err)
	}
	caps := chartutil.DefaultCapabilities.Copy()
	version, err := chartutil.ParseKubeVersion(cmp.Or(o.kubernetes, current))
	if err != nil {
		t.Fatal(err)
	}
	caps.KubeVersion = *version
	c := load(t)
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "rdistcc", Namespace: "build", Revision: 1, IsInstall: true}, caps)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	out := make(map[string]string)
	for name, text := range files {
		if strings.TrimSpace(text) != "" {
			out[path.Base(name)] = text
		}
	}
	return out, nil
}

// objects are a chart's manifests, decoded.
type objects struct {
	stateful *appsv1.StatefulSet
	daemons  *appsv1.DaemonSet
	config   *corev1.ConfigMap
	service  *corev1.Service
	network  *networkingv1.NetworkPolicy
	budget   *policyv1.PodDisruptionBudget
	hpa      *autoscalingv2.HorizontalPodAutoscaler
	scaled   *scaledObject
	monitor  *serviceMonitor
}

// pod returns the template of the hosts' pods.
func (o *objects) pod() *corev1.PodSpec {
	if o.daemons != nil {
		return &o.daemons.Spec.Template.Spec
	}
	return &o.stateful.Spec.Template.Spec
}

// decode decodes manifests. A field that Kubernetes does not know is an error.
func decode(manifests ...string) (*objects, error) {
	o := new(objects)
	for _, text := range manifests {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
			return nil, err
		}
		var into any
		switch kind.APIVersion + " " + kind.Kind {
		case "apps/v1 StatefulSet":
			o.stateful = new(appsv1.StatefulSet)
			into = o.stateful
		case "apps/v1 DaemonSet":
			o.daemons = new(appsv1.DaemonSet)
			into = o.daemons
		case "v1 ConfigMap":
			o.config = new(corev1.ConfigMap)
			into = o.config
		case "v1 Service":
			o.service = new(corev1.Service)
			into = o.service
		case "networking.k8s.io/v1 NetworkPolicy":
			o.network = new(networkingv1.NetworkPolicy)
			into = o.network
		case "policy/v1 PodDisruptionBudget":
			o.budget = new(policyv1.PodDisruptionBudget)
			into = o.budget
		case "autoscaling/v2 HorizontalPodAutoscaler":
			o.hpa = new(autoscalingv2.HorizontalPodAutoscaler)
			into = o.hpa
		case "keda.sh/v1alpha1 ScaledObject":
			o.scaled = new(scaledObject)
			into = o.scaled
		case "monitoring.coreos.com/v1 ServiceMonitor":
			o.monitor = new(serviceMonitor)
			into = o.monitor
		default:
			return nil, fmt.Errorf("%s %s is no kind that the chart should have", kind.APIVersion, kind.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			return nil, fmt.Errorf("%s: %w", kind.Kind, err)
		}
	}
	return o, nil
}

// mustRender renders and decodes manifests.
func mustRender(t *testing.T, values string) *objects {
	t.Helper()
	files, err := render(t, options{values: values})
	if err != nil {
		t.Fatal(err)
	}
	delete(files, "NOTES.txt")
	var all []string
	for _, text := range files {
		all = append(all, text)
	}
	o, err := decode(all...)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// plain is where the manifests for users without Helm are.
const plain = "../../kubernetes/rdistcc.yaml"

// TestPlainManifests: the plain manifests are the chart's with its default values.
func TestPlainManifests(t *testing.T) {
	files, err := render(t, options{})
	if err != nil {
		t.Fatal(err)
	}
	delete(files, "NOTES.txt")
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	text := "# Compile hosts of rdistcc: the chart in deploy/helm/rdistcc with its default values, written by `make manifests`.\n" +
		"# Change the image, the number of replicas and the secret as docs/kubernetes.md says, then: kubectl -n build apply -f rdistcc.yaml\n"
	for _, name := range names {
		// Without Helm nothing is managed by it.
		body := strings.NewReplacer("app.kubernetes.io/managed-by: Helm", "app.kubernetes.io/managed-by: kubectl").Replace(strings.TrimSpace(files[name]))
		var lines []string
		for line := range strings.Lines(body) {
			if line = strings.TrimRight(line, " \n"); line != "" && !strings.Contains(line, "helm.sh/chart:") {
				lines = append(lines, line)
			}
		}
		text += "---\n" + strings.Join(lines, "\n") + "\n"
	}
	if *update {
		if err := os.WriteFile(plain, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != text {
		t.Errorf("%s is not what the chart makes; run `make manifests`", plain)
	}
	var documents []string
	for _, d := range strings.Split(string(got), "---\n")[1:] {
		documents = append(documents, d)
	}
	if _, err := decode(documents...); err != nil {
		t.Error(err)
	}
}
