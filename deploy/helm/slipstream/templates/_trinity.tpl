{{- define "slipstream.bufferSecret" -}}
{{- if .Values.postgresql.externalUrlSecret.name -}}
{{- .Values.postgresql.externalUrlSecret | toJson -}}
{{- else -}}
{{- dict "name" (.Values.postgresql.existingSecret | default (printf "%s-postgresql" (include "slipstream.fullname" .))) "key" "url" | toJson -}}
{{- end -}}
{{- end }}

{{- define "slipstream.checkpointClaim" -}}
{{- .Values.trinity.checkpoints.existingClaim | default (printf "%s-checkpoints" (include "slipstream.fullname" .)) -}}
{{- end }}

{{/*
A pod of a Ray cluster. Takes {context, component, section}. KubeRay adds the command, the probes, /dev/shm and the
ports: with a port declared here, its Service of the head would have that one alone, and the operator would not find the
dashboard to which it submits the job.
*/}}
{{- define "slipstream.rayPod" -}}
{{- $trinity := .context.Values.trinity -}}
{{- $secret := include "slipstream.bufferSecret" .context | fromJson -}}
metadata:
  labels: {{- include "slipstream.selector" . | nindent 4 }}
spec:
  enableServiceLinks: false
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 120
  securityContext: {{- include "slipstream.podSecurity" $trinity.user | nindent 4 }}
  {{- with .context.Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $trinity.runtimeClassName }}
  runtimeClassName: {{ . }}
  {{- end }}
  {{- with include "slipstream.placement" .section | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  containers:
    - name: ray
      image: {{ include "slipstream.image" (dict "context" .context "image" $trinity.image) }}
      imagePullPolicy: {{ $trinity.image.pullPolicy }}
      env:
        - {name: MODEL_PATH, value: {{ $trinity.modelPath | quote }}}
        - {name: CHECKPOINT_ROOT_DIR, value: /checkpoints}
        - name: BUFFER_URL
          valueFrom:
            secretKeyRef: {name: {{ $secret.name }}, key: {{ $secret.key }}}
        - {name: EXPLORER_LISTEN_ADDRESS, value: 0.0.0.0} # the network policy is what keeps others out
        - {name: EXPLORER_PORT, value: "8010"}
        {{- with $trinity.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      resources:
        {{- range $kind, $amounts := .section.resources }}
        {{ $kind }}:
          {{- toYaml $amounts | nindent 10 }}
          {{- with $.section.gpus }}
          {{ $trinity.gpuResource }}: {{ . }}
          {{- end }}
        {{- end }}
      securityContext: {{- include "slipstream.containerSecurity" $trinity.user | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/slipstream, readOnly: true}
        - {name: checkpoints, mountPath: /checkpoints}
        {{- if $trinity.models.existingClaim }}
        - {name: models, mountPath: /models, readOnly: true}
        {{- end }}
        - {name: tmp, mountPath: /tmp}
        - {name: cache, mountPath: /home/slipstream/.cache} # what vLLM and Triton compile
  volumes:
    - name: config
      configMap: {name: {{ include "slipstream.fullname" .context }}-{{ .component }}}
    - name: checkpoints
      persistentVolumeClaim: {claimName: {{ include "slipstream.checkpointClaim" .context }}}
    {{- with $trinity.models.existingClaim }}
    - name: models
      persistentVolumeClaim: {claimName: {{ . }}, readOnly: true}
    {{- end }}
    - name: tmp
      emptyDir: {sizeLimit: {{ $trinity.tmpSize }}}
    - name: cache
      emptyDir: {sizeLimit: {{ $trinity.cacheSize }}}
{{- end }}

{{/*
Ray's CPUs are places for workers, not cores: eight, and four for each GPU, as in a Ray of `slipstream trinity`. KubeRay
would take the limit of CPUs, and where that is too little Trinity waits for ever.
*/}}
{{- define "slipstream.rayPlaces" -}}
num-cpus: {{ add 8 (mul 4 .gpus) | quote }}
{{- end }}

{{/*
What a RayJob is told. Takes {context, component, section, nodes}. The overlays in their order: PostgreSQL (two pods
cannot share a SQLite file on a network filesystem), those that the values name, this cluster's size, the own fields.
*/}}
{{- define "slipstream.raySpec" -}}
submissionMode: HTTPMode # the operator asks Ray itself; a submitter pod would have to hold a connection for months
entrypoint: >-
  bash /etc/slipstream/trinity.sh --config /etc/slipstream/{{ .component }}.yaml
  {{- range concat (list "postgresql") .context.Values.trinity.overlays (list "cluster" "fields") }}
  --overlay /etc/slipstream/overlay-{{ . }}.yaml
  {{- end }}
backoffLimit: {{ .context.Values.trinity.backoffLimit }} # tries in new Ray clusters
shutdownAfterJobFinishes: true # a job that failed for good gives its GPUs back
ttlSecondsAfterFinished: 600 # after its log could be read
rayClusterSpec:
  rayVersion: {{ .context.Values.trinity.rayVersion | quote }}
  headGroupSpec:
    rayStartParams: {dashboard-host: 0.0.0.0, {{ include "slipstream.rayPlaces" .section }}} # the job is submitted there
    template: {{- include "slipstream.rayPod" . | nindent 6 }}
  {{- if gt (int .nodes) 1 }}
  workerGroupSpecs:
    - groupName: gpu
      replicas: {{ sub .nodes 1 }}
      minReplicas: {{ sub .nodes 1 }}
      maxReplicas: {{ sub .nodes 1 }}
      rayStartParams: { {{- include "slipstream.rayPlaces" .section -}} }
      template: {{- include "slipstream.rayPod" . | nindent 8 }}
  {{- end }}
{{- end }}

{{/*
A RayJob. KubeRay does not change one that runs, whatever its manifest says; so its name carries a hash of all that it
is told, and `helm upgrade` puts a new one in the place of the old. With the ConfigMap of its files.
Takes {context, component, section, nodes}.
*/}}
{{- define "slipstream.rayJob" -}}
{{- $spec := include "slipstream.raySpec" . -}}
{{- $documents := include "slipstream.trinityDocuments" . -}}
{{- $told := printf "%s%s" $spec $documents | sha256sum | trunc 8 -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "slipstream.fullname" .context }}-{{ .component }}
  labels: {{- include "slipstream.labels" . | nindent 4 }}
data: {{- $documents | nindent 2 }}
---
apiVersion: ray.io/v1
kind: RayJob
metadata:
  name: {{ include "slipstream.fullname" .context }}-{{ .component }}-{{ $told }}
  labels: {{- include "slipstream.labels" . | nindent 4 }}
spec: {{- $spec | nindent 2 }}
{{- end }}

{{/* explorer.yaml with the values' overlays and fields, as JSON: what the chart itself must know of it. */}}
{{- define "slipstream.explorerDocument" -}}
{{- $document := .Files.Get "files/explorer.yaml" | fromYaml -}}
{{- range .Values.trinity.overlays -}}
{{- $document = mergeOverwrite $document ($.Files.Get (printf "files/overlays/%s.yaml" .) | fromYaml) -}}
{{- end -}}
{{- mergeOverwrite $document (deepCopy .Values.trinity.fields) | toJson -}}
{{- end }}

{{/*
The files of a RayJob: those of the repository, and the two overlays that are made here.
Takes {context, component, section, nodes}.
*/}}
{{- define "slipstream.trinityDocuments" -}}
{{- $files := .context.Files -}}
{{- range list (printf "%s.yaml" .component) "trinity.sh" }}
{{ . }}: | {{- $files.Get (printf "files/%s" .) | nindent 2 }}
{{- end }}
{{- range concat (list "postgresql") .context.Values.trinity.overlays }}
overlay-{{ . }}.yaml: | {{- $files.Get (printf "files/overlays/%s.yaml" .) | nindent 2 }}
{{- end }}
overlay-cluster.yaml: |
  cluster:
    node_num: {{ .nodes }}
    gpu_per_node: {{ .section.gpus }}
overlay-fields.yaml: | {{- toYaml .context.Values.trinity.fields | nindent 2 }}
{{- end }}
