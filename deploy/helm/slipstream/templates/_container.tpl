{{/*
The sidecar as a container, and its volumes. This chart's Deployment is made of them, and so can a chart of yours that
has this one as a dependency (with sidecar.form: injected):

  initContainers:
    - {{ include "slipstream.container" (dict "context" .Subcharts.slipstream "native" true) | nindent 6 | trim }}
  volumes: {{- include "slipstream.volumes" .Subcharts.slipstream | nindent 4 }}
*/}}

{{- define "slipstream.store" -}}
{{- dig "store" "url" "sqlite+aiosqlite:////var/lib/slipstream/slipstream.db" .Values.sidecar.config -}}
{{- end }}

{{- define "slipstream.storeClaim" -}}
{{- .Values.sidecar.store.existingClaim | default (printf "%s-store" (include "slipstream.fullname" .)) -}}
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
the same as explorer.yaml and trainer.yaml about the size of groups and batches.
*/}}
{{- define "slipstream.sidecarYaml" -}}
{{- $given := dict
  "listen" "0.0.0.0:8100"
  "store" (dict "url" (include "slipstream.store" .))
  "explorer" (dict "base_url" (include "slipstream.explorerUrl" .)) -}}
{{- if .Values.explorer.enabled -}}
{{- $told := include "slipstream.explorerDocument" . | fromJson -}}
{{- $_ := set $given.explorer "train_batch_size" $told.buffer.train_batch_size -}}
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

{{/* Takes {context, native}. native: as an init container that stays (a native sidecar). */}}
{{- define "slipstream.container" -}}
{{- $sidecar := .context.Values.sidecar -}}
name: slipstream
image: {{ include "slipstream.image" (dict "context" .context "image" $sidecar.image) }}
imagePullPolicy: {{ $sidecar.image.pullPolicy }}
{{- if .native }}
restartPolicy: Always # started before the agent, stopped after it
{{- end }}
command: [slipstream, serve, --config, /etc/slipstream/sidecar.yaml]
workingDir: /etc/slipstream # where a `python: module:Object` setting finds its module
{{- with $sidecar.env }}
env: {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  - {name: http, containerPort: 8100}
startupProbe:
  httpGet: {path: /healthz, port: 8100}
  periodSeconds: 2
  failureThreshold: 60
readinessProbe: # production's traffic flows, whatever the training side and its store do
  httpGet: {path: /healthz, port: 8100}
  periodSeconds: 5
  timeoutSeconds: 3
livenessProbe: # a worker of the proxy answers it itself: a store that is busy must not end the traffic
  httpGet: {path: /healthz, port: 8100}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
resources: {{- toYaml $sidecar.resources | nindent 2 }}
securityContext: {{- include "slipstream.containerSecurity" $sidecar.user | nindent 2 }}
volumeMounts:
  - {name: slipstream-config, mountPath: /etc/slipstream, readOnly: true}
  {{- if hasPrefix "sqlite" (include "slipstream.store" .context) }}
  - {name: slipstream-store, mountPath: /var/lib/slipstream}
  {{- end }}
  - {name: slipstream-tmp, mountPath: /tmp}
  {{- if include "slipstream.secrets" .context | fromJson }}
  - {name: slipstream-secrets, mountPath: /run/secrets/slipstream, readOnly: true}
  {{- end }}
{{- end }}

{{- define "slipstream.volumes" -}}
- name: slipstream-config
  configMap: {name: {{ include "slipstream.fullname" . }}-sidecar}
{{- if hasPrefix "sqlite" (include "slipstream.store" .) }}
- name: slipstream-store
  persistentVolumeClaim: {claimName: {{ include "slipstream.storeClaim" . }}}
{{- end }}
- name: slipstream-tmp
  emptyDir: {sizeLimit: 1Gi}
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
90 seconds: answers under way get 26 with their capture, then what was captured, runs and the last commit 62 in all.
*/}}
{{- define "slipstream.podNeeds" -}}
enableServiceLinks: false
terminationGracePeriodSeconds: 90
{{- end }}

{{/* Changes with the configuration, so that a pod with it as an annotation starts again. */}}
{{- define "slipstream.checksum" -}}
{{ printf "%s%s" (include "slipstream.sidecarYaml" .) (toJson .Values.sidecar.files) | sha256sum }}
{{- end }}
