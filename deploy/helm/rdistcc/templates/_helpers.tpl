{{- define "rdistcc.name" -}}
{{- if contains "rdistcc" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-rdistcc" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "rdistcc.selector" -}}
app.kubernetes.io/name: rdistcc
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "rdistcc.labels" -}}
{{ include "rdistcc.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* What the schema cannot say: values that do not go together. */}}
{{- define "rdistcc.check" -}}
{{- with .Values }}
{{- if not (or .auth.tlsSecret .auth.pskSecret) }}{{ fail "auth: hosts listen beyond their pod, so they need auth.tlsSecret or auth.pskSecret (docs/farm.md)" }}{{ end }}
{{- if and .autoscaling.by (ne .kind "StatefulSet") }}{{ fail "autoscaling.by: a DaemonSet has as many hosts as there are nodes; set kind: StatefulSet" }}{{ end }}
{{- if gt (int .autoscaling.min) (int .autoscaling.max) }}{{ fail "autoscaling: min is above max" }}{{ end }}
{{- if and (eq (int .autoscaling.min) 0) (ne .autoscaling.by "keda") (ne .autoscaling.by "") }}{{ fail "autoscaling.min: 0 needs autoscaling.by: keda" }}{{ end }}
{{- if and .cache.persistent (ne .kind "StatefulSet") }}{{ fail "cache.persistent: only the hosts of a StatefulSet have volumes of their own" }}{{ end }}
{{- if and .hostPort (ne .kind "DaemonSet") }}{{ fail "hostPort: two hosts on one node would need the same port; set kind: DaemonSet" }}{{ end }}
{{- end }}
{{- if and (eq .Values.confinement "userns") (semverCompare "<1.33.0-0" .Capabilities.KubeVersion.Version) }}
{{- fail (printf "confinement: userns needs Kubernetes 1.33, where pods have user namespaces, and this is %s; set confinement to seccomp or restricted" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- end }}

{{- /* The daemon's settings: the chart's, and over them those in the value config. */}}
{{- define "rdistcc.settings" -}}
{{- $v := .Values }}
{{- $own := dict
  "sandbox" "strict"
  "daemon" (dict "listen" (list "[::]:7632") "jobs" (int $v.places) "work-dir" "/work" "job-timeout" (printf "%ds" (int $v.drain.jobTimeout)))
  "http" (dict "daemon" "[::]:7633") }}
{{- if $v.auth.tlsSecret }}
{{- $_ := set $own "auth" (dict "tls" (dict "cert" "/etc/rdistcc/auth/tls.crt" "key" "/etc/rdistcc/auth/tls.key" "ca" "/etc/rdistcc/auth/ca.crt")) }}
{{- else }}
{{- $_ := set $own "auth" (dict "psk-file" "/etc/rdistcc/auth/key") }}
{{- end }}
{{- toYaml (mustMergeOverwrite $own (deepCopy $v.config)) }}
{{- end }}
