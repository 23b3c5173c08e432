{{/* Names and labels. */}}
{{- define "tiphys.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "tiphys.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- $name := include "tiphys.name" . }}
{{- if contains $name .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tiphys.selectorLabels" -}}
app.kubernetes.io/name: {{ include "tiphys.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "tiphys.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{ include "tiphys.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
app.kubernetes.io/part-of: tiphys
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "tiphys.podLabels" -}}
{{- $labels := include "tiphys.labels" . | fromYaml }}
{{- range $key, $value := .extra }}
{{- if not (hasKey $labels $key) }}{{ $_ := set $labels $key $value }}{{ end }}
{{- end }}
{{- toYaml $labels }}
{{- end }}

{{/* image: digest before tag before default. dict root image tag */}}
{{- define "tiphys.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ default .tag .image.tag }}
{{- end }}
{{- end }}

{{/* The cluster's version without what vendors append (v1.36.3-gke.100, v1.35.8+k3s1): the tag of the upstream image. */}}
{{- define "tiphys.clusterTag" -}}
{{- $version := regexFind "^v?[0-9]+\\.[0-9]+\\.[0-9]+" .Capabilities.KubeVersion.Version }}
{{- if not $version }}
{{- fail (printf "cannot read a Kubernetes version from %q: set scheduler.image.tag to the version of the cluster, such as v1.36.3" .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- printf "v%s" (trimPrefix "v" $version) }}
{{- end }}

{{- define "tiphys.schedulerImage" -}}
{{- $image := .Values.scheduler.image }}
{{- if or $image.digest $image.tag }}
{{- include "tiphys.image" (dict "image" $image "tag" "") }}
{{- else }}
{{- include "tiphys.image" (dict "image" $image "tag" (include "tiphys.clusterTag" .)) }}
{{- end }}
{{- end }}

{{/* Which pods hold the extender. */}}
{{- define "tiphys.extenderComponent" -}}
{{- ternary "extender" "scheduler" .Values.extender.service.enabled }}
{{- end }}

{{- define "tiphys.extenderAccount" -}}
{{ include "tiphys.fullname" . }}-extender
{{- end }}

{{/* Beside the scheduler the extender's token comes from a Secret. Another name is the only way to another token: one made anew under the old
name, for the same account, is the same token again. */}}
{{- define "tiphys.extenderAccountSecret" -}}
{{ include "tiphys.extenderAccount" . }}-account-{{ int .Values.extender.accountTokenGeneration }}
{{- end }}

{{- define "tiphys.tokenSecret" -}}
{{- default (printf "%s-token" (include "tiphys.fullname" .)) .Values.token.existingSecret }}
{{- end }}

{{/* Peers that may read metrics: as the user says, else the namespace of Prometheus. */}}
{{- define "tiphys.metricsFrom" -}}
{{- $from := .Values.networkPolicy.metricsFrom }}
{{- if not (kindIs "invalid" $from) }}
{{- toYaml $from }}
{{- else if .Values.monitoring.namespace }}
- namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: {{ .Values.monitoring.namespace }}
{{- else }}
[]
{{- end }}
{{- end }}

{{- define "tiphys.statusScheme" -}}
{{ ternary "https" "http" (not (empty .Values.status.tls.secretName)) }}
{{- end }}

{{/* How much strangers may cost a status listener, and its certificate. dict root prefix */}}
{{- define "tiphys.statusEnv" -}}
- name: {{ .prefix }}_MAX_CONNECTIONS
  value: {{ int64 .root.Values.status.maxConnections | quote }}
- name: {{ .prefix }}_MAX_CONNECTIONS_PER_PEER
  value: {{ int64 .root.Values.status.maxConnectionsPerPeer | quote }}
- name: {{ .prefix }}_STATUS_REQUESTS_PER_SECOND
  value: {{ int64 .root.Values.status.requestsPerSecond | quote }}
{{- if .root.Values.status.tls.secretName }}
- name: {{ .prefix }}_STATUS_TLS_CERT_FILE
  value: /run/tiphys/status-tls/tls.crt
- name: {{ .prefix }}_STATUS_TLS_KEY_FILE
  value: /run/tiphys/status-tls/tls.key
- name: {{ .prefix }}_STATUS_CA_FILE
  value: /run/tiphys/status-ca/ca.crt
{{- end }}
{{- end }}

{{/* Files of tokens, by purpose. dict root prefix purposes */}}
{{- define "tiphys.tokenEnv" -}}
{{- if .root.Values.token.separate }}
{{- range .purposes }}
- name: {{ $.prefix }}_{{ upper . }}_TOKEN_FILE
  value: /run/tiphys/token/{{ . }}
{{- end }}
{{- else }}
- name: {{ .prefix }}_TOKEN_FILE
  value: /run/tiphys/token/token
{{- end }}
{{- end }}

{{- define "tiphys.statusMounts" -}}
{{- if .Values.status.tls.secretName }}
- {name: status-tls, mountPath: /run/tiphys/status-tls, readOnly: true}
- {name: status-ca, mountPath: /run/tiphys/status-ca, readOnly: true}
{{- end }}
{{- end }}

{{- define "tiphys.statusCaVolume" -}}
{{- with .Values.status.tls }}
{{- if .secretName }}
- name: status-ca
  secret:
    secretName: {{ .caSecretName | default .secretName }}
    items:
      - key: ca.crt
        path: ca.crt
{{- end }}
{{- end }}
{{- end }}

{{- define "tiphys.statusVolumes" -}}
{{- with .Values.status.tls.secretName }}
- name: status-tls
  secret:
    secretName: {{ . }}
    items:
      - key: tls.crt
        path: tls.crt
      - key: tls.key
        path: tls.key
{{- end }}
{{ include "tiphys.statusCaVolume" . }}
{{- end }}

{{- define "tiphys.tenantsSecret" -}}
{{- default (printf "%s-tenants" (include "tiphys.fullname" .)) .Values.binder.tenants.existingSecret }}
{{- end }}

{{- define "tiphys.leaseKeysSecret" -}}
{{- default (printf "%s-lease-keys" (include "tiphys.fullname" .)) .Values.binder.streams.leaseKeys.existingSecret }}
{{- end }}

{{- define "tiphys.intentKeysSecret" -}}
{{- default (printf "%s-intent-keys" (include "tiphys.fullname" .)) .Values.operator.scaling.intentKeys.existingSecret }}
{{- end }}

{{- define "tiphys.weight" -}}
{{- get (dict "decisive" "121" "advisory" "10") .Values.scheduler.weight }}
{{- end }}

{{/* Pod security: the restricted profile, whatever the values. */}}
{{- define "tiphys.podSecurityContext" -}}
runAsNonRoot: true
{{- with .Values.podSecurity.runAsUser }}
runAsUser: {{ . }}
{{- end }}
{{- with .Values.podSecurity.runAsGroup }}
runAsGroup: {{ . }}
{{- end }}
{{- with .Values.podSecurity.fsGroup }}
fsGroup: {{ . }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "tiphys.containerSecurityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* Where pods run. dict root component knobs replicas */}}
{{- define "tiphys.podPlacement" -}}
# Our own pods must not need us to be scheduled.
schedulerName: default-scheduler
{{- with .knobs.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
terminationGracePeriodSeconds: {{ .knobs.terminationGracePeriodSeconds }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .knobs.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .knobs.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .knobs.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if .knobs.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- toYaml .knobs.topologySpreadConstraints | nindent 2 }}
{{- else if gt (int .replicas) 1 }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "tiphys.selectorLabels" . | nindent 8 }}
{{- end }}
{{- end }}

{{/* Where learned weights come from. */}}
{{- define "tiphys.modelsVolume" -}}
- name: models
  {{- if .Values.models.persistentVolumeClaim }}
  persistentVolumeClaim:
    claimName: {{ .Values.models.persistentVolumeClaim }}
    readOnly: true
  {{- else }}
  configMap:
    name: {{ default (printf "%s-models" (include "tiphys.fullname" .)) .Values.models.configMap }}
    # It may be made, or filled, at any time.
    optional: true
  {{- end }}
{{- end }}

{{/* Only the tokens of the pod's own purposes. dict root purposes */}}
{{- define "tiphys.tokenVolume" -}}
- name: token
  secret:
    secretName: {{ include "tiphys.tokenSecret" .root }}
    items:
      {{- if .root.Values.token.separate }}
      {{- range .purposes }}
      - key: {{ . }}
        path: {{ . }}
      {{- end }}
      {{- else }}
      - key: {{ .root.Values.token.key }}
        path: token
      {{- end }}
{{- end }}

{{/* The authority of the hot path's certificates: our ConfigMap, or a Secret. */}}
{{- define "tiphys.caVolume" -}}
- name: ca
  {{- with .Values.extender.service.tls.ca }}
  {{- if .bundle }}
  configMap:
    name: {{ include "tiphys.fullname" $ }}-extender-ca
  {{- else }}
  secret:
    secretName: {{ .secretName }}
    items:
      - key: {{ .key }}
        path: ca.crt
  {{- end }}
  {{- end }}
{{- end }}

{{/* Digest of that authority: kube-scheduler reads it once, so a new one must restart it. A Secret is looked up, which only a live cluster answers. */}}
{{- define "tiphys.caChecksum" -}}
{{- $ca := .Values.extender.service.tls.ca }}
{{- if $ca.bundle }}
{{- $ca.bundle | sha256sum }}
{{- else }}
{{- $secret := lookup "v1" "Secret" .Release.Namespace $ca.secretName }}
{{- if $secret }}
{{- get ($secret.data | default dict) $ca.key | sha256sum }}
{{- else }}
{{- printf "secret %s" $ca.secretName | sha256sum }}
{{- end }}
{{- end }}
{{- end }}

{{/* The policy that holds pods which may wait. */}}
{{- define "tiphys.waitingPolicy" -}}
{{ include "tiphys.fullname" . }}-waiting
{{- end }}

{{/* Whether the cluster can put gates on pods without a webhook. */}}
{{- define "tiphys.gatesServed" -}}
{{- if or (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") (semverCompare ">=1.36.0-0" .Capabilities.KubeVersion.Version) }}true{{ end }}
{{- end }}

{{/* Whether pods are held. */}}
{{- define "tiphys.gatesHeld" -}}
{{- if and .Values.gates.enabled (include "tiphys.gatesServed" .) }}true{{ end }}
{{- end }}

{{/* Whether gates are opened: also after pods were held until this very upgrade, which only a live cluster tells. */}}
{{- define "tiphys.gatesOpened" -}}
{{- if or (include "tiphys.gatesHeld" .) .Values.gates.keepOpening }}true
{{- else if include "tiphys.gatesServed" . }}
{{- if lookup "admissionregistration.k8s.io/v1" "MutatingAdmissionPolicy" "" (include "tiphys.waitingPolicy" .) }}true{{ end }}
{{- end }}
{{- end }}

{{/* The label of pods whose readiness says that they can open gates. */}}
{{- define "tiphys.openerLabel" -}}
{{- if include "tiphys.gatesHeld" . -}}
tiphys.io/opener: "true"
{{- end }}
{{- end }}

{{/* Combinations that cannot work, said before anything is rendered. */}}
{{- define "tiphys.check" -}}
{{- $service := .Values.extender.service }}
{{- if $service.enabled }}
{{- if not (or $service.tls.ca.bundle $service.tls.ca.secretName) }}
{{- fail "extender.service.enabled needs extender.service.tls.ca.bundle or .secretName: without a CA kube-scheduler silently accepts any certificate" }}
{{- end }}
{{- if not $service.tls.serverSecretName }}
{{- fail "extender.service.enabled needs extender.service.tls.serverSecretName, a kubernetes.io/tls Secret with the serving certificate" }}
{{- end }}
{{- if and .Values.scheduler.enabled (not $service.tls.clientSecretName) }}
{{- fail "extender.service.enabled with scheduler.enabled needs extender.service.tls.clientSecretName, a kubernetes.io/tls Secret with the scheduler's client certificate" }}
{{- end }}
{{- else if not .Values.scheduler.enabled }}
{{- fail "scheduler.enabled=false leaves the extender without a scheduler: set extender.service.enabled=true and point your own scheduler at it" }}
{{- end }}
{{- if .Values.binder.enabled }}
{{- $binder := .Values.binder }}
{{- if not (or $binder.tenants.existingSecret $binder.tenants.namespaces) }}
{{- fail "binder.enabled needs binder.tenants.namespaces, for which the chart's own token may place calls, or binder.tenants.existingSecret" }}
{{- end }}
{{- if not (or $binder.tls.serverSecretName $binder.tls.insecure) }}
{{- fail "binder.enabled needs binder.tls.serverSecretName, a kubernetes.io/tls Secret with the serving certificate; binder.tls.insecure=true sends tokens in the clear" }}
{{- end }}
{{- end }}
{{- range $place := list "kube-system" "kube-public" "kube-node-lease" .Release.Namespace }}
{{- if has $place $.Values.operator.scaling.namespaces }}
{{- fail (printf "operator.scaling.namespaces must not hold %s: the cluster itself, or this release, runs there" $place) }}
{{- end }}
{{- end }}
{{- $lease := .Values.operator.lease }}
{{- if not (and (gt (int $lease.durationSeconds) (int $lease.renewSeconds)) (gt (mul 10 (int $lease.renewSeconds)) (mul 12 (int $lease.retrySeconds)))) }}
{{- fail "operator.lease needs durationSeconds > renewSeconds > 1.2 x retrySeconds: a leader must be able to miss a renewal, and must stop before another starts" }}
{{- end }}
{{- if ge (int .Values.extender.deadlineMilliseconds) (int (include "tiphys.httpTimeoutMilliseconds" .)) }}
{{- fail "extender.deadlineMilliseconds must be less than scheduler.httpTimeout: a later answer reaches nobody" }}
{{- end }}
{{- end }}

{{- define "tiphys.httpTimeoutMilliseconds" -}}
{{- $text := .Values.scheduler.httpTimeout }}
{{- $number := regexFind "^[0-9]+" $text | int }}
{{- if hasSuffix "ms" $text }}{{ $number }}{{ else if hasSuffix "s" $text }}{{ mul 1000 $number }}{{ else }}{{ mul 60000 $number }}{{ end }}
{{- end }}

{{/* Status addresses of binders of streams, with commas. */}}
{{- define "tiphys.streamBinders" -}}
{{- $all := .Values.operator.binding.binders -}}
{{- if and .Values.binder.enabled .Values.binder.streams.accessSite -}}
{{- $all = prepend $all (printf "%s://%s-binder-status.%s.svc:8080" (include "tiphys.statusScheme" .) (include "tiphys.fullname" .) .Release.Namespace) -}}
{{- end -}}
{{- join "," $all -}}
{{- end }}

{{/* What scaling does to workloads and looks at around them: everywhere, or in the namespaces that are named. */}}
{{- define "tiphys.scalingRules" -}}
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get]
- apiGroups: [apps]
  resources: [deployments/scale]
  verbs: [patch]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get]
- apiGroups: [apps]
  resources: [statefulsets/scale]
  verbs: [patch]
- apiGroups: [""]
  resources: [pods/resize]
  verbs: [patch]
- apiGroups: [""]
  resources: [resourcequotas]
  verbs: [list]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [list]
- apiGroups: [autoscaling.k8s.io]
  resources: [verticalpodautoscalers]
  verbs: [list]
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [list]
{{- end }}
