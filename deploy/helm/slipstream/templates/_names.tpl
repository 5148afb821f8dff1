{{/*
The name that everything begins with. At most 29 characters: KubeRay allows 47 for a RayJob, and "-explorer-" with a
hash of eight comes behind.
*/}}
{{- define "slipstream.fullname" -}}
{{- $release := .Release.Name -}}
{{- $name := contains .Chart.Name $release | ternary $release (printf "%s-%s" $release .Chart.Name) -}}
{{- .Values.fullnameOverride | default $name | trunc 29 | trimSuffix "-" -}}
{{- end }}

{{/* Labels that selectors use: they never change. Takes {context, component}. */}}
{{- define "slipstream.selector" -}}
app.kubernetes.io/name: {{ .context.Chart.Name }}
app.kubernetes.io/instance: {{ .context.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* All labels of an object. Takes {context, component}. */}}
{{- define "slipstream.labels" -}}
{{ include "slipstream.selector" . }}
app.kubernetes.io/part-of: slipstream
app.kubernetes.io/version: {{ .context.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .context.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .context.Chart.Name .context.Chart.Version }}
{{- end }}

{{/*
The label of every pod that carries the sidecar, in either form: the Explorer lets these in, and no others.
*/}}
{{- define "slipstream.sidecarLabel" -}}
slipstream-sidecar: {{ include "slipstream.fullname" . }}
{{- end }}

{{/* image:tag, or image@digest. Takes {context, image}. */}}
{{- define "slipstream.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .context.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What every container of the chart may do: nothing beyond its own process. */}}
{{- define "slipstream.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The same for a pod; fsGroup lets the process write its volumes. */}}
{{- define "slipstream.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Where pods may run, from a section of the values. */}}
{{- define "slipstream.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end }}

{{/* A claim for storage. Takes {name, labels, mode, storage}. */}}
{{- define "slipstream.claim" -}}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ .name }}
  labels: {{- .labels | nindent 4 }}
  annotations:
    helm.sh/resource-policy: keep # an uninstall must not delete what was learned; delete the claim by hand
spec:
  accessModes: [{{ .mode }}]
  {{- with .storage.storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources:
    requests:
      storage: {{ .storage.size }}
{{- end }}
