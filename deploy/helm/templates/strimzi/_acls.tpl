{{/* One ACL: type, name, operations, and patternType if it is not "literal". */}}
{{- define "tarry.acl" -}}
- resource:
    type: {{ .type }}
    name: {{ .name | quote }}
    patternType: {{ .pattern | default "literal" }}
  operations: [{{ join ", " .operations }}]
{{- end -}}

{{/* The ACLs for the targets of an intake. A glob such as orders.* becomes one prefixed ACL; any other glob needs an ACL
     for all topics. */}}
{{- define "tarry.targetAcls" -}}
{{- $operations := .operations -}}
{{- if not (or .intake.target .intake.targets) }}
{{- fail (printf "intake %s: set targets, for example [orders, bills.*]: the user may write to these topics; [\"*\"] is every topic of the cluster" .intake.topic) }}
{{- end }}
{{- range (ternary (list .intake.target) .intake.targets (hasKey .intake "target")) }}
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
