package check

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// choices are values that users will set, by what they are about.
var choices = map[string]string{
	"default":    "",
	"daemonset":  "{kind: DaemonSet, hostPort: 7632, nodeSelector: {pool: build}, tolerations: [{key: build, operator: Exists}]}",
	"restricted": "{confinement: restricted, image: {repository: example.org/gcc-hosts, tag: '12'}, imagePullSecrets: [{name: pull}]}",
	"seccomp":    "{confinement: seccomp, seccompProfile: profiles/x.json}",
	"key":        "{auth: {tlsSecret: '', pskSecret: farm-key}, config: {limits: {client-running: 8}, sandbox: auto}}",
	"volumes":    "{cache: {persistent: true, storageClass: fast, size: 50Gi}, resources: {requests: {cpu: 8}, limits: {memory: 24Gi}}}",
	"hpa":        "{autoscaling: {by: hpa, min: 2, max: 40}, serviceMonitor: {enabled: true, labels: {release: prometheus}}}",
	"keda":       "{autoscaling: {by: keda, min: 0, max: 40, query: 'sum(rdistcc_cm_wanted_places)'}, podLabels: {a: b}, podAnnotations: {c: d}}",
	"network":    "{networkPolicy: {clients: [{ipBlock: {cidr: 10.0.0.0/8}}], monitoring: [{namespaceSelector: {matchLabels: {x: y}}}]}, priorityClassName: low}",
	"spread": `{topologySpreadConstraints: [{maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: ScheduleAnyway}],
		affinity: {nodeAffinity: {}}, podDisruptionBudget: {enabled: false}, replicas: 0}`,
}

// TestChart: whatever users choose, Helm's linter is content, and the manifests have no field that Kubernetes does not know.
func TestChart(t *testing.T) {
	for name, text := range choices {
		t.Run(name, func(t *testing.T) {
			values, err := chartutil.ReadValues([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			version, err := chartutil.ParseKubeVersion(current)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range lint.AllWithKubeVersion(chartDir, values, "build", version).Messages {
				if m.Severity >= support.WarningSev {
					t.Error(m)
				}
			}
			o := mustRender(t, text)
			if o.stateful == nil == (o.daemons == nil) || o.config == nil || o.service == nil || o.network == nil {
				t.Errorf("the chart makes %+v", o)
			}
			// What the daemon is told, and what finds it, agree.
			container := o.pod().Containers[0]
			var mounted []string
			for _, m := range container.VolumeMounts {
				mounted = append(mounted, m.MountPath)
			}
			for _, place := range []string{"/etc/rdistcc/settings", "/etc/rdistcc/auth", "/work", "/tmp", "/var/cache"} {
				if !slices.Contains(mounted, place) {
					t.Errorf("nothing is mounted on %s", place)
				}
			}
			if o.service.Spec.ClusterIP != corev1.ClusterIPNone || o.service.Spec.PublishNotReadyAddresses {
				t.Error("the service does not stand for the addresses of its ready hosts")
			}
			for k, v := range o.service.Spec.Selector {
				labels := map[string]string{}
				if o.stateful != nil {
					maps.Copy(labels, o.stateful.Spec.Template.Labels)
				} else {
					maps.Copy(labels, o.daemons.Spec.Template.Labels)
				}
				if labels[k] != v {
					t.Errorf("the service selects %s=%s, and pods have %q", k, v, labels[k])
				}
			}
		})
	}
}

// TestHostsGoInPeace: a host that is removed is forgotten by name servers, then drains for as long as a compile may take, and only then
// is killed. Its pages stay on meanwhile, and say that it takes no work.
func TestHostsGoInPeace(t *testing.T) {
	for _, values := range []string{"", "{drain: {delay: 20, jobTimeout: 1800}}"} {
		o := mustRender(t, values)
		pod := o.pod()
		c := pod.Containers[0]
		var settings struct {
			Daemon struct {
				Timeout string `json:"job-timeout"`
			}
		}
		if err := yaml.Unmarshal([]byte(o.config.Data["config.yaml"]), &settings); err != nil {
			t.Fatal(err)
		}
		delay, timeout := c.Lifecycle.PreStop.Sleep.Seconds, strings.TrimSuffix(settings.Daemon.Timeout, "s")
		if want := map[string]int64{"600": 5, "1800": 20}[timeout]; delay != want {
			t.Errorf("preStop sleeps %d s with a limit of %s s for compiles", delay, timeout)
		}
		if grace, least := *pod.TerminationGracePeriodSeconds, map[string]int64{"600": 5 + 600 + 10, "1800": 20 + 1800 + 10}[timeout]; grace < least {
			t.Errorf("a pod is killed after %d s, and may need %d", grace, least)
		}
		if c.ReadinessProbe.HTTPGet.Path != "/readyz" || c.LivenessProbe.HTTPGet.Path != "/healthz" || c.StartupProbe.HTTPGet.Path != "/healthz" {
			t.Error("probes ask for other pages than the daemon has for them")
		}
		if o.budget == nil || o.budget.Spec.MaxUnavailable.IntValue() != 1 {
			t.Error("more than one host may be drained at a time")
		}
	}
}

// TestRights: what pods may do is what each kind of confinement needs, and nothing more.
func TestRights(t *testing.T) {
	for name, want := range map[string]struct {
		own     bool // a user namespace
		add     []corev1.Capability
		seccomp corev1.SeccompProfileType
	}{
		"userns":     {true, []corev1.Capability{"SYS_ADMIN", "SETUID", "SETGID", "CHOWN", "KILL"}, corev1.SeccompProfileTypeRuntimeDefault},
		"seccomp":    {false, nil, corev1.SeccompProfileTypeLocalhost},
		"restricted": {false, nil, corev1.SeccompProfileTypeRuntimeDefault},
	} {
		pod := mustRender(t, "confinement: "+name).pod()
		all, one := pod.SecurityContext, pod.Containers[0].SecurityContext
		if got := pod.HostUsers != nil && !*pod.HostUsers; got != want.own {
			t.Errorf("%s: a user namespace of its own: %v", name, got)
		}
		if !slices.Equal(one.Capabilities.Add, want.add) || !slices.Equal(one.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s: capabilities %+v", name, one.Capabilities)
		}
		if all.SeccompProfile.Type != want.seccomp || !*one.ReadOnlyRootFilesystem || *pod.AutomountServiceAccountToken || pod.HostNetwork || pod.HostPID {
			t.Errorf("%s: %+v, %+v", name, all, one)
		}
		if !want.own && (!*all.RunAsNonRoot || *all.RunAsUser != 65534 || *one.AllowPrivilegeEscalation) {
			t.Errorf("%s: runs as root of the node: %+v", name, all)
		}
		if name == "restricted" && all.AppArmorProfile != nil {
			t.Errorf("%s: without AppArmor, which the Pod Security Standard asks for", name)
		}
	}
	policy := mustRender(t, "").network.Spec
	if len(policy.PolicyTypes) != 2 || len(policy.Egress) != 0 || len(policy.Ingress) != 1 {
		t.Errorf("hosts may be reached, and reach, more than they need: %+v", policy)
	}
}

// TestAutoscaling: there are as many hosts as wanted places divided by a host's places, and the number of replicas is left to the autoscaler.
func TestAutoscaling(t *testing.T) {
	o := mustRender(t, "{places: 6, autoscaling: {by: hpa}}")
	m := o.hpa.Spec.Metrics[0].External
	if m.Metric.Name != "rdistcc_wanted_places" || m.Target.AverageValue.Value() != 6 || o.hpa.Spec.ScaleTargetRef.Name != o.stateful.Name || o.stateful.Spec.Replicas != nil {
		t.Errorf("%+v", o.hpa.Spec)
	}
	o = mustRender(t, "{places: 6, autoscaling: {by: keda}}")
	trigger := o.scaled.Spec.Triggers[0].Metadata
	const of = `{namespace="build",service="rdistcc"}`
	if trigger["threshold"] != "6" || trigger["query"] != "sum(rdistccd_jobs_running"+of+" + rdistccd_jobs_queued"+of+") + max(rdistccd_jobs_waiting"+of+")" ||
		o.scaled.Spec.ScaleTargetRef.Name != o.stateful.Name || o.stateful.Spec.Replicas != nil {
		t.Errorf("%+v", o.scaled.Spec)
	}
}

// TestBadValues: values that make no sense get a line that names the value, and says what it may be.
func TestBadValues(t *testing.T) {
	for values, want := range map[string]string{
		"kind: Deployment":      "at '/kind': value must be one of 'StatefulSet', 'DaemonSet'",
		"replica: 3":            "at '': additional properties 'replica' not allowed",
		"replicas: many":        "at '/replicas': got string, want integer",
		"places: 0":             "at '/places': minimum: got 0, want 1",
		"confinement: full":     "at '/confinement': value must be one of 'userns', 'seccomp', 'restricted'",
		"cache: {size: 10 GB}":  "at '/cache/size': '10 GB' does not match pattern",
		"auth: {tlsSecret: ''}": "auth: hosts listen beyond their pod, so they need auth.tlsSecret or auth.pskSecret",
		"{kind: DaemonSet, autoscaling: {by: hpa}}":    "autoscaling.by: a DaemonSet has as many hosts as there are nodes",
		"autoscaling: {by: keda, min: 5, max: 4}":      "autoscaling: min is above max",
		"autoscaling: {by: hpa, min: 0}":               "autoscaling.min: 0 needs autoscaling.by: keda",
		"hostPort: 7632":                               "hostPort: two hosts on one node would need the same port",
		"{kind: DaemonSet, cache: {persistent: true}}": "cache.persistent: only the hosts of a StatefulSet have volumes",
	} {
		_, err := render(t, options{values: values})
		if err == nil {
			t.Errorf("%s: is accepted", values)
			continue
		}
		lines := 0
		for line := range strings.Lines(err.Error()) {
			if strings.Contains(line, want) {
				lines++
			}
		}
		if lines != 1 {
			t.Errorf("%s: %v; want one line with %q", values, err, want)
		}
	}
	// A cluster that would ignore the user namespace, and so make the daemon root of its nodes.
	if _, err := render(t, options{kubernetes: "v1.32.4"}); err == nil || !strings.Contains(err.Error(), "confinement: userns needs Kubernetes 1.33") {
		t.Errorf("Kubernetes 1.32: %v", err)
	}
	if _, err := render(t, options{kubernetes: "v1.32.4", values: "confinement: restricted"}); err != nil {
		t.Error(err)
	}
}
