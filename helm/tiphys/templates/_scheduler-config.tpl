{{/* KubeSchedulerConfiguration. All default plugins stay on: filters always hold, and scores decide whenever the extender is neutral or down. */}}
{{- define "tiphys.schedulerConfig" -}}
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  qps: {{ .Values.scheduler.qps }}
  burst: {{ .Values.scheduler.burst }}
leaderElection:
  leaderElect: true
  resourceLock: leases
  resourceNamespace: {{ .Release.Namespace }}
  # Its own: with the default name it would wait for the cluster's scheduler for ever.
  resourceName: {{ include "tiphys.fullname" . }}-scheduler
{{- if gt (int .Values.scheduler.percentageOfNodesToScore) 0 }}
percentageOfNodesToScore: {{ .Values.scheduler.percentageOfNodesToScore }}
{{- end }}
profiles:
  - schedulerName: {{ .Values.schedulerName }}
{{ include "tiphys.extenderStanza" . }}
{{- end }}

{{- define "tiphys.extenderStanza" -}}
extenders:
  {{- if .Values.extender.service.enabled }}
  {{- $host := printf "%s-extender.%s.svc" (include "tiphys.fullname" .) .Release.Namespace }}
  - urlPrefix: https://{{ default $host .Values.extender.service.clusterIP }}:{{ .Values.extender.service.port }}
    enableHTTPS: true
    tlsConfig:
      serverName: {{ $host }}
      caFile: /run/tiphys/ca/ca.crt
      certFile: /run/tiphys/client-tls/tls.crt
      keyFile: /run/tiphys/client-tls/tls.key
  {{- else }}
  - urlPrefix: http://127.0.0.1:8888
  {{- end }}
    # Prioritize only: a filter verb would cost a second call and could leave pods without a node.
    prioritizeVerb: prioritize
    weight: {{ include "tiphys.weight" . }}
    nodeCacheCapable: true
    ignorable: true
    httpTimeout: {{ .Values.scheduler.httpTimeout }}
{{- end }}
