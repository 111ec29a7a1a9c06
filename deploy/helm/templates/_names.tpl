{{- define "tarry.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "tarry.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "tarry.labels" -}}
{{ include "tarry.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "tarry.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest | quote -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) | quote -}}
{{- end -}}
{{- end -}}

{{/* The name of the Secret with librdkafka's secret properties; empty if there is no such Secret. */}}
{{- define "tarry.secretName" -}}
{{- if .Values.secret.existing -}}
{{- .Values.secret.existing -}}
{{- else if .Values.secret.values -}}
{{- include "tarry.name" . }}-sasl
{{- end -}}
{{- end -}}

{{/* The same for `tarry api`, which may have credentials of its own. */}}
{{- define "tarry.apiSecretName" -}}
{{- .Values.api.kafkaSecret | default (include "tarry.secretName" .) -}}
{{- end -}}

{{/* What the paths of `tarry api` begin with; empty or /… . */}}
{{- define "tarry.apiPrefix" -}}
{{- dig "prefix" "" (.Values.config.api | default dict) -}}
{{- end -}}

{{/* A Kubernetes resource name made from a Kafka topic name. */}}
{{- define "tarry.resourceName" -}}
{{- $legal := lower . | replace "_" "-" -}}
{{- if or (ne $legal .) (gt (len $legal) 200) -}}
{{- printf "%s-%s" ($legal | trunc 200 | trimAll ".-") (sha256sum . | trunc 8) -}}
{{- else -}}
{{- $legal -}}
{{- end -}}
{{- end -}}
