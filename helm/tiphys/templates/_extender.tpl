{{/* The extender container: in the scheduler's pod on loopback, or in its own behind mutual TLS. */}}
{{- define "tiphys.extenderContainer" -}}
{{- $service := .Values.extender.service.enabled -}}
- name: extender
  image: {{ include "tiphys.image" (dict "image" .Values.extender.image "tag" .Chart.AppVersion) | quote }}
  imagePullPolicy: {{ .Values.extender.image.pullPolicy }}
  env:
    - name: TIPHYS_EXTENDER_HOST
      value: {{ ternary "0.0.0.0" "127.0.0.1" $service | quote }}
    - name: TIPHYS_EXTENDER_PORT
      value: {{ ternary "8443" "8888" $service | quote }}
    {{- include "tiphys.decidingEnv" (dict "root" . "purposes" (list "decisions")) | nindent 4 }}
    {{- if not $service }}
    # A pod has one account, and this pod's is the scheduler's: the extender is told where its own is.
    - name: TIPHYS_EXTENDER_ACCOUNT_DIR
      value: /run/tiphys/account
    {{- end }}
    {{- if $service }}
    - name: TIPHYS_EXTENDER_TLS_CERT_FILE
      value: /run/tiphys/tls/tls.crt
    - name: TIPHYS_EXTENDER_TLS_KEY_FILE
      value: /run/tiphys/tls/tls.key
    - name: TIPHYS_EXTENDER_TLS_CLIENT_CA_FILE
      value: /run/tiphys/ca/ca.crt
    {{- end }}
    {{- if include "tiphys.gatesHeld" . }}
    - name: TIPHYS_EXTENDER_GATES_ENABLED
      value: "true"
    - name: TIPHYS_EXTENDER_GATES_LONGEST_WAIT_S
      value: {{ .Values.gates.longestWaitSeconds | quote }}
    {{- end }}
    {{- with .Values.extender.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  ports:
    {{- if $service }}
    - name: hot-path
      containerPort: 8443
    {{- end }}
    - name: status
      containerPort: 8080
  {{- include "tiphys.decidingProbes" (dict "root" . "ready" (include "tiphys.extenderReady" .)) | nindent 2 }}
  resources:
    {{- toYaml .Values.extender.resources | nindent 4 }}
  securityContext:
    {{- include "tiphys.containerSecurityContext" . | nindent 4 }}
  volumeMounts:
    - {name: models, mountPath: /models, readOnly: true}
    - {name: token, mountPath: /run/tiphys/token, readOnly: true}
    - {name: decisions, mountPath: /var/lib/tiphys}
    {{- if not $service }}
    - {name: extender-account, mountPath: /run/tiphys/account, readOnly: true}
    {{- end }}
    {{- with include "tiphys.statusMounts" . }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- if $service }}
    - {name: server-tls, mountPath: /run/tiphys/tls, readOnly: true}
    - {name: ca, mountPath: /run/tiphys/ca, readOnly: true}
    {{- end }}
{{- end }}

{{/* dict root purposes */}}
{{- define "tiphys.decidingVolumes" -}}
{{ include "tiphys.modelsVolume" .root }}
{{ include "tiphys.tokenVolume" . }}
{{- with include "tiphys.statusVolumes" .root | trim }}
{{ . }}
{{- end }}
- name: decisions
  emptyDir:
    sizeLimit: {{ .root.Values.extender.decisionLog.sizeLimit }}
{{- end }}

{{- define "tiphys.extenderVolumes" -}}
{{ include "tiphys.decidingVolumes" (dict "root" . "purposes" (list "decisions")) }}
{{- end }}

{{/* What extender and binder are told alike. */}}
{{/* dict root purposes */}}
{{- define "tiphys.decidingEnv" -}}
- name: TIPHYS_EXTENDER_STATUS_HOST
  value: "0.0.0.0"
- name: TIPHYS_EXTENDER_STATUS_PORT
  value: "8080"
- name: TIPHYS_EXTENDER_EXPLAIN_PORT
  value: "8081"
- name: TIPHYS_EXTENDER_SCHEDULER_NAME
  value: {{ .root.Values.schedulerName | quote }}
- name: TIPHYS_EXTENDER_OWN_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: TIPHYS_EXTENDER_SWITCH_CONFIGMAP
  value: {{ include "tiphys.fullname" .root }}-switch
- name: TIPHYS_EXTENDER_LOG_LEVEL
  value: {{ .root.Values.extender.logLevel | quote }}
- name: TIPHYS_EXTENDER_DEADLINE_MS
  value: {{ .root.Values.extender.deadlineMilliseconds | quote }}
- name: TIPHYS_EXTENDER_STALL_LIMIT_S
  value: {{ .root.Values.extender.stallLimitSeconds | quote }}
- name: TIPHYS_EXTENDER_RESERVATION_TTL_S
  value: {{ .root.Values.extender.reservationTtlSeconds | quote }}
- name: TIPHYS_EXTENDER_MAX_BODY_BYTES
  value: {{ int64 .root.Values.extender.maxBodyBytes | quote }}
- name: TIPHYS_EXTENDER_MAX_NAMES
  value: {{ int64 .root.Values.extender.maxNames | quote }}
- name: TIPHYS_EXTENDER_PROMETHEUS_URL
  value: {{ .root.Values.extender.prometheus.url | quote }}
{{- with .root.Values.extender.prometheus.headers }}
- name: TIPHYS_EXTENDER_PROMETHEUS_HEADERS
  value: {{ toJson . | quote }}
{{- end }}
{{- with .root.Values.extender.prometheus.nodeMatchers }}
- name: TIPHYS_EXTENDER_PROMETHEUS_NODE_MATCHERS
  value: {{ toJson . | quote }}
{{- end }}
{{- with .root.Values.extender.prometheus.runtimeMatchers }}
- name: TIPHYS_EXTENDER_PROMETHEUS_RUNTIME_MATCHERS
  value: {{ toJson . | quote }}
{{- end }}
- name: TIPHYS_EXTENDER_PROMETHEUS_POD_CPU_SERIES
  value: {{ .root.Values.extender.prometheus.podCpuSeries | quote }}
- name: TIPHYS_EXTENDER_SCRAPE_WINDOW_S
  value: {{ .root.Values.extender.prometheus.scrapeWindowSeconds | quote }}
- name: TIPHYS_EXTENDER_READINGS_INTERVAL_S
  value: {{ .root.Values.extender.prometheus.readingsIntervalSeconds | quote }}
- name: TIPHYS_EXTENDER_NODE_LABEL
  value: {{ .root.Values.extender.prometheus.nodeLabel | quote }}
- name: TIPHYS_EXTENDER_MODELS_DIR
  value: /models
{{ include "tiphys.tokenEnv" (dict "root" .root "prefix" "TIPHYS_EXTENDER" "purposes" .purposes) | trim }}
{{ include "tiphys.statusEnv" (dict "root" .root "prefix" "TIPHYS_EXTENDER") }}
- name: TIPHYS_EXTENDER_DECISION_LOG_DIR
  value: /var/lib/tiphys
- name: TIPHYS_EXTENDER_STATE_DIR
  value: /var/lib/tiphys
- name: TIPHYS_EXTENDER_DECISION_LOG_MAX
  value: {{ int64 .root.Values.extender.decisionLog.maxRecords | quote }}
{{- end }}

{{/* The path whose answer is the readiness of the extender's pod. Beside the scheduler nobody is reached by that but the openers' Service, which
asks whether gates are opened; behind a Service of its own the extender must answer the scheduler, whether or not it opens gates. */}}
{{- define "tiphys.extenderReady" -}}
{{ ternary "/openers/ready" "/readyz" (and (not .Values.extender.service.enabled) (eq (include "tiphys.gatesHeld" .) "true")) }}
{{- end }}

{{/* dict root ready */}}
{{- define "tiphys.decidingProbes" -}}
startupProbe:
  httpGet: {path: /healthz, port: status, scheme: {{ include "tiphys.statusScheme" .root | upper }}}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: status, scheme: {{ include "tiphys.statusScheme" .root | upper }}}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 3
readinessProbe:
  httpGet: {path: {{ .ready }}, port: status, scheme: {{ include "tiphys.statusScheme" .root | upper }}}
  periodSeconds: 5
  timeoutSeconds: 2
  failureThreshold: 2
lifecycle:
  preStop:
    # Outlive the scheduler of the same pod, or let endpoints forget this one, before connections are refused.
    sleep: {seconds: 5}
{{- end }}
