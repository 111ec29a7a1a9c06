{{/* One rule: type, name, operations; patternType where it is no literal. */}}
{{- define "tarry.acl" -}}
- resource:
    type: {{ .type }}
    name: {{ .name | quote }}
    patternType: {{ .pattern | default "literal" }}
  operations: [{{ join ", " .operations }}]
{{- end -}}

{{/* Topics that an intake delivers to, one rule each: a glob that is a prefix is one, any other is every topic. */}}
{{- define "tarry.targetAcls" -}}
{{- $operations := .operations -}}
{{- range (ternary (list .intake.target) (.intake.targets | default (list "*")) (hasKey .intake "target")) }}
{{- if not (regexMatch "[*?\\[]" .) }}
{{ include "tarry.acl" (dict "type" "topic" "name" . "operations" $operations) }}
{{- else if eq . "*" }}
{{ include "tarry.acl" (dict "type" "topic" "name" "*" "operations" $operations) }}
{{- else if regexMatch "^[^*?\\[]+\\*$" . }}
{{ include "tarry.acl" (dict "type" "topic" "name" (trimSuffix "*" .) "pattern" "prefix" "operations" $operations) }}
{{- else }}
{{- fail (printf "targets: Kafka has no ACL for %s; name the topics, or end it with *" .) }}
{{- end }}
{{- end }}
{{- end -}}
