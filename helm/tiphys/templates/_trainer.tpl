{{/* The pod that trains and publishes: a Job's, or a CronJob's. */}}
{{- define "tiphys.trainerPod" -}}
{{- $labels := dict "root" . "component" "trainer" "extra" .Values.trainer.podLabels }}
metadata:
  labels:
    {{- include "tiphys.podLabels" $labels | nindent 4 }}
  {{- with .Values.trainer.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  restartPolicy: Never
  serviceAccountName: {{ include "tiphys.fullname" . }}-trainer
  automountServiceAccountToken: true
  {{- include "tiphys.podPlacement" (dict "root" . "component" "trainer" "knobs" .Values.trainer "replicas" 1) | nindent 2 }}
  securityContext:
    {{- include "tiphys.podSecurityContext" . | nindent 4 }}
  containers:
    - name: trainer
      image: {{ include "tiphys.image" (dict "image" .Values.trainer.image "tag" .Chart.AppVersion) | quote }}
      imagePullPolicy: {{ .Values.trainer.image.pullPolicy }}
      command:
        - tiphys
        - train
        {{- $scaling := eq .Values.trainer.preset "combined" }}
        - {{ $scaling | ternary "scaling" "placement" }}
        - --preset={{ .Values.trainer.preset }}
        - --seeds={{ .Values.trainer.seeds }}
        {{- with .Values.trainer.steps }}
        - --{{ $scaling | ternary "rounds" "steps" }}={{ . }}
        {{- end }}
        {{- if $scaling }}
        - --from-transitions={{ include "tiphys.statusScheme" . }}://{{ include "tiphys.fullname" . }}-operator.{{ .Release.Namespace }}.svc:8080
        - --token-file=/run/tiphys/token/{{ ternary "transitions" "token" .Values.token.separate }}
        {{- if .Values.status.tls.secretName }}
        - --ca-file=/run/tiphys/status-ca/ca.crt
        {{- end }}
        {{- end }}
        - --out=/scratch
        - --publish={{ .Values.trainer.modelName }}
        - --namespace={{ .Release.Namespace }}
      env:
        # Compiled code is kept where the root file system may be written.
        - {name: NUMBA_CACHE_DIR, value: /scratch/numba}
        - {name: HOME, value: /scratch}
        {{- with .Values.trainer.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      resources:
        {{- toYaml .Values.trainer.resources | nindent 8 }}
      securityContext:
        {{- include "tiphys.containerSecurityContext" . | nindent 8 }}
      volumeMounts:
        - {name: work, mountPath: /scratch}
        - {name: work, mountPath: /tmp, subPath: tmp}
        {{- if $scaling }}
        - {name: token, mountPath: /run/tiphys/token, readOnly: true}
        {{- if .Values.status.tls.secretName }}
        - {name: status-ca, mountPath: /run/tiphys/status-ca, readOnly: true}
        {{- end }}
        {{- end }}
  volumes:
    - name: work
      {{- if .Values.trainer.existingClaim }}
      persistentVolumeClaim:
        claimName: {{ .Values.trainer.existingClaim }}
      {{- else }}
      emptyDir:
        sizeLimit: 2Gi
      {{- end }}
    {{- if $scaling }}
    {{- include "tiphys.tokenVolume" (dict "root" . "purposes" (list "transitions")) | nindent 4 }}
    {{- with include "tiphys.statusCaVolume" . | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- end }}
{{- end }}

{{- define "tiphys.trainerJob" -}}
backoffLimit: 1
activeDeadlineSeconds: {{ .Values.trainer.deadlineSeconds }}
template:
  {{- include "tiphys.trainerPod" . | nindent 2 }}
{{- end }}
