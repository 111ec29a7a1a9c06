{{/* The fields that all pods share, beside the name of their ServiceAccount. */}}
{{- define "tarry.podBasics" -}}
automountServiceAccountToken: false
# Kubernetes would set variables such as TARRY_PORT for a Service named tarry, and the service refuses unknown ones.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: {{ .Values.user | int64 }}
  runAsGroup: {{ .Values.user | int64 }}
  fsGroup: {{ .Values.user | int64 }}
  seccompProfile:
    type: RuntimeDefault
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- define "tarry.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Environment variables for librdkafka's secret properties, read from the Secret `secret` or from its files. */}}
{{- define "tarry.secretEnv" -}}
{{- range $option, $key := .root.Values.secret.options }}
{{- $variable := print "TARRY_KAFKA__OPTIONS__" ($option | replace "." "_" | upper) }}
{{- if $.root.Values.secret.asFiles }}
- name: {{ $variable }}_FILE
  value: /etc/tarry/secret/{{ $key }}
{{- else }}
- name: {{ $variable }}
  valueFrom:
    secretKeyRef:
      name: {{ $.secret }}
      key: {{ $key }}
{{- end }}
{{- end }}
{{- with .root.Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tarry.mounts" -}}
- name: config
  mountPath: /etc/tarry/tarry.toml
  subPath: tarry.toml
  readOnly: true
{{- if .Values.tls.existing }}
- name: tls
  mountPath: /etc/tarry/tls
  readOnly: true
{{- end }}
{{- if .Values.tls.user }}
- name: user
  mountPath: /etc/tarry/user
  readOnly: true
{{- end }}
{{- if and .Values.secret.asFiles .Values.secret.options }}
- name: secret
  mountPath: /etc/tarry/secret
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
- name: tmp
  mountPath: /tmp
{{- end -}}

{{/*
The volumes that all pods share; `tarry.toml` is in the ConfigMap `config`, and the secret properties of librdkafka in the
Secret `secret`.
*/}}
{{- define "tarry.volumes" -}}
{{- $secret := .secret }}
{{- $config := .config }}
{{- with .root -}}
- name: config
  configMap:
    name: {{ $config }}
{{- with .Values.tls.existing }}
- name: tls
  secret:
    secretName: {{ . }}
{{- end }}
{{- with .Values.tls.user }}
- name: user
  secret:
    secretName: {{ . }}
{{- end }}
{{- if and .Values.secret.asFiles .Values.secret.options }}
- name: secret
  secret:
    secretName: {{ $secret }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* The connections that every pod may make. */}}
{{- define "tarry.egress" -}}
- ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
- ports:
    {{- range .Values.networkPolicy.kafkaPorts }}
    - port: {{ int64 . }}
    {{- end }}
  {{- with .Values.networkPolicy.kafka }}
  to: {{- toYaml . | nindent 4 }}
  {{- end }}
{{- with .Values.networkPolicy.egress }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tarry.secretData" -}}
{{- range $key, $value := .Values.secret.values }}
{{ $key }}: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* The annotations of what the Job of the topics needs. */}}
{{- define "tarry.beforeJob" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: "-1"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
