{{/*
The sidecar as two containers, and their volumes. This chart's Deployment is made of them, and so can a chart of yours
that has this one as a dependency (with sidecar.form: injected):

  initContainers: {{- include "slipstream.sidecars" .Subcharts.slipstream | nindent 4 }}
  volumes: {{- include "slipstream.volumes" .Subcharts.slipstream | nindent 4 }}

The proxy carries production's traffic. The training side may be killed, starved or out of memory beside it: it has
limits, a log and restarts of its own, and they share nothing but a folder in memory.
*/}}

{{- define "slipstream.store" -}}
{{- dig "store" "url" "sqlite+aiosqlite:////var/lib/slipstream/slipstream.db" .Values.sidecar.config -}}
{{- end }}

{{- define "slipstream.storeClaim" -}}
{{- .Values.sidecar.store.existingClaim | default (printf "%s-store" (include "slipstream.fullname" .)) -}}
{{- end }}

{{/* Where data sets lie; empty if nowhere: without the claim of SQLite's store that takes one of its own. */}}
{{- define "slipstream.datasets" -}}
{{- if or (.Values.sidecar.datasets).existingClaim (hasPrefix "sqlite" (include "slipstream.store" .)) -}}
/var/lib/slipstream/datasets
{{- end -}}
{{- end }}

{{/* Folders of versions, as JSON; empty if there are none, and then the checkpoints are not mounted. */}}
{{- define "slipstream.versionFolders" -}}
{{- $serving := .Values.sidecar.config.serving | default dict -}}
{{- $folders := dict "checkpoints" $serving.checkpoints "keep" $serving.keep "lane.directory" ($serving.lane).directory -}}
{{- range $key, $folder := $folders }}{{ if not $folder }}{{ $_ := unset $folders $key }}{{ end }}{{ end -}}
{{- with $folders }}{{ toJson . }}{{ end -}}
{{- end }}

{{- define "slipstream.explorerUrl" -}}
http://{{ include "slipstream.fullname" . }}-explorer:8010
{{- end }}

{{/* The Secrets of the values, and with sidecar.makeKeys those that the chart makes; as JSON. */}}
{{- define "slipstream.secrets" -}}
{{- $made := dict -}}
{{- if .Values.sidecar.makeKeys -}}
{{- range $key := list "access_keys" "metrics_key" -}}
{{- $_ := set $made $key (dict "existingSecret" (printf "%s-keys" (include "slipstream.fullname" $)) "key" $key) -}}
{{- end -}}
{{- end -}}
{{- mergeOverwrite $made (deepCopy .Values.sidecar.secrets) | toJson -}}
{{- end }}

{{/*
sidecar.yaml: what the cluster decides, and over it sidecar.config of the values. With an Explorer of the chart it says
the same as explorer.yaml and trainer.yaml about the algorithm and the size of groups and batches.
*/}}
{{- define "slipstream.sidecarYaml" -}}
{{- $given := dict
  "listen" "0.0.0.0:8100"
  "proxy" (dict "sockets" "/run/slipstream/sockets")
  "store" (dict "url" (include "slipstream.store" .))
  "datasets" (dict "directory" (include "slipstream.datasets" . | default nil))
  "explorer" (dict "base_url" (include "slipstream.explorerUrl" .)) -}}
{{- if eq "3Gi" (dig "limits" "memory" "" .Values.sidecar.training.resources | toString) -}}{{- /* the chart's own: see values.yaml */ -}}
{{- $_ := set $given "isolation" (dict "content_memory" "256MiB" "user_memory" "768MiB") -}}
{{- end -}}
{{- if .Values.explorer.enabled -}}
{{- $told := include "slipstream.explorerDocument" . | fromJson -}}
{{- $_ := set $given.explorer "train_batch_size" $told.buffer.train_batch_size -}}
{{- $_ := set $given.explorer "algorithm_type" $told.algorithm.algorithm_type -}}
{{- $_ := set $given "runs" (dict "repeat_time" $told.algorithm.repeat_times) -}}
{{- end -}}
{{- range $section := list "production" "facade" -}}
{{- $file := printf "%s_api_key" $section -}}
{{- if hasKey (include "slipstream.secrets" $ | fromJson) $file -}}
{{- $_ := set $given $section (dict "api_key" (printf "${file:/run/secrets/slipstream/%s}" $file)) -}}
{{- end -}}
{{- end -}}
{{- if hasKey (include "slipstream.secrets" . | fromJson) "access_keys" -}}
{{- $_ := set $given "access" (dict "keys_file" "/run/secrets/slipstream/access_keys") -}}
{{- end -}}
{{- mergeOverwrite $given (deepCopy .Values.sidecar.config) | toYaml -}}
{{- end }}

{{/* Both halves as native sidecars: init containers that stay. Started in this order, ended in the opposite one. */}}
{{- define "slipstream.sidecars" -}}
- {{ include "slipstream.half" (dict "context" . "half" "training" "native" true) | nindent 2 | trim }}
- {{ include "slipstream.half" (dict "context" . "half" "proxy" "native" true) | nindent 2 | trim }}
{{- end }}

{{/* One half. Takes {context, half, native}; half: proxy or training; native: as an init container that stays. */}}
{{- define "slipstream.half" -}}
{{- $sidecar := .context.Values.sidecar -}}
{{- $proxy := eq .half "proxy" -}}
name: slipstream-{{ .half }}
image: {{ include "slipstream.image" (dict "context" .context "image" $sidecar.image) }}
imagePullPolicy: {{ $sidecar.image.pullPolicy }}
{{- if .native }}
restartPolicy: Always
{{- end }}
command: [slipstream, {{ .half }}, --config, /etc/slipstream/sidecar.yaml]
workingDir: /etc/slipstream # where a `python: module:Object` setting finds its module
{{- with $sidecar.env }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $proxy }}
ports:
  # Beside an agent a name of its own: `http` may be the agent's. In the Deployment it stays, because in an upgrade the
  # Service would find no old pod by another one.
  - {name: {{ .native | ternary "slipstream" "http" }}, containerPort: 8100}
startupProbe:
  httpGet: {path: /healthz, port: 8100}
  periodSeconds: 2
  failureThreshold: 60
readinessProbe: # a worker of the proxy answers it itself, whatever the training side and its store do
  httpGet: {path: /healthz, port: 8100}
  periodSeconds: 5
  timeoutSeconds: 3
livenessProbe:
  httpGet: {path: /healthz, port: 8100}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- if not .native }}
lifecycle: # new connections come until each node has taken the pod out of the Service; the drain begins after that
  preStop: {exec: {command: [sleep, "5"]}}
{{- end }}
{{- else }}
# No probes: a container that is not ready takes its whole pod, and so production's traffic, out of the Service. The
# container's own first process replaces a training side that dies or hangs.
{{- end }}
resources: {{- toYaml (get $sidecar .half).resources | nindent 2 }}
securityContext: {{- include "slipstream.containerSecurity" $sidecar.user | nindent 2 }}
volumeMounts:
  - {name: slipstream-config, mountPath: /etc/slipstream, readOnly: true}
  - {name: slipstream-sockets, mountPath: /run/slipstream}
  {{- if and (not $proxy) (hasPrefix "sqlite" (include "slipstream.store" .context)) }}
  - {name: slipstream-store, mountPath: /var/lib/slipstream}
  {{- end }}
  {{- if and (not $proxy) ($sidecar.datasets).existingClaim }}
  - {name: slipstream-datasets, mountPath: {{ include "slipstream.datasets" .context }}}
  {{- end }}
  {{- if and (not $proxy) (include "slipstream.versionFolders" .context) }}
  - {name: slipstream-checkpoints, mountPath: /checkpoints}
  {{- end }}
  - {name: slipstream-{{ .half }}-tmp, mountPath: /tmp}
  {{- if include "slipstream.secrets" .context | fromJson }}
  - {name: slipstream-secrets, mountPath: /run/secrets/slipstream, readOnly: true}
  {{- end }}
{{- end }}

{{/*
In memory is what the proxy writes to. A disk that is full or slow would hold it up, for a write to a mapped page waits
while the page is written back; and a pod whose emptyDir on a disk grows over its limit is evicted, the proxy with it.
*/}}
{{- define "slipstream.volumes" -}}
- name: slipstream-config
  configMap: {name: {{ include "slipstream.fullname" . }}-sidecar}
- name: slipstream-sockets
  emptyDir: {medium: Memory, sizeLimit: 32Mi}
{{- if hasPrefix "sqlite" (include "slipstream.store" .) }}
- name: slipstream-store
  persistentVolumeClaim: {claimName: {{ include "slipstream.storeClaim" . }}}
{{- end }}
{{- with (.Values.sidecar.datasets).existingClaim }}
- name: slipstream-datasets
  persistentVolumeClaim: {claimName: {{ . }}}
{{- end }}
{{- if include "slipstream.versionFolders" . }}
- name: slipstream-checkpoints
  persistentVolumeClaim: {claimName: {{ include "slipstream.checkpointClaim" . }}}
{{- end }}
- name: slipstream-proxy-tmp
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
- name: slipstream-training-tmp
  emptyDir: {medium: Memory, sizeLimit: 64Mi}
{{- with include "slipstream.secrets" . | fromJson }}
- name: slipstream-secrets
  projected:
    defaultMode: 0440
    sources:
      {{- range $file, $from := . }}
      - secret:
          name: {{ $from.existingSecret }}
          items: [{key: {{ $from.key }}, path: {{ $file }}}]
      {{- end }}
{{- end }}
{{- end }}

{{/*
What belongs to a pod that carries the sidecar, beside containers and volumes.
No service links: Kubernetes would make SLIPSTREAM_..._SERVICE_HOST variables, and the sidecar refuses unknown ones.
100 seconds: 5 until no new connections come, 26 for the proxy (answers under way, and their capture), and after it 62
for the training side (what was captured, runs, the last commit).
*/}}
{{- define "slipstream.podNeeds" -}}
enableServiceLinks: false
terminationGracePeriodSeconds: 100
{{- end }}

{{/* Changes with the configuration, so that a pod with it as an annotation starts again. */}}
{{- define "slipstream.checksum" -}}
{{ printf "%s%s" (include "slipstream.sidecarYaml" .) (toJson .Values.sidecar.files) | sha256sum }}
{{- end }}

{{/* Not empty if more than one pod may run. */}}
{{- define "slipstream.several" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.sidecar.replicas) 1) }}yes{{ end -}}
{{- end }}
