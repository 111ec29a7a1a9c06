{{/* A value in TOML's syntax. Helm reads YAML numbers as floats, and the service takes integers only. */}}
{{- define "tarry.tomlValue" -}}
{{- if kindIs "float64" . -}}
{{- if ne (float64 (int64 .)) . -}}{{- fail (printf "config: %v is not a whole number" .) -}}{{- end -}}
{{- int64 . -}}
{{- else if or (kindIs "string" .) (kindIs "bool" .) (kindIs "slice" .) (kindIs "int64" .) (kindIs "int" .) -}}
{{- mustToRawJson . -}}
{{- else -}}
{{- fail (printf "config: %v is neither text, a number, true, false nor a list" .) -}}
{{- end -}}
{{- end -}}

{{- define "tarry.tomlFields" -}}
{{- range $field, $value := . }}
{{- if not (kindIs "map" $value) }}
{{ $field }} = {{ include "tarry.tomlValue" $value }}
{{- end }}
{{- end }}
{{- end -}}

{{/* tarry.toml, written from .Values.config. */}}
{{- define "tarry.toml" -}}
{{- range $section, $table := .Values.config }}
{{- if kindIs "slice" $table }}
{{- range $table }}

[[{{ $section }}]]
{{- include "tarry.tomlFields" . }}
{{- end }}
{{- else }}

[{{ $section }}]
{{- include "tarry.tomlFields" $table }}
{{- end }}
{{- end }}
{{- with dig "oidc" false (.Values.config.api | default dict) }}

[api.oidc]
{{- include "tarry.tomlFields" . }}
{{- end }}
{{- with .Values.config.kafka.options }}

[kafka.options]
{{- range $option, $value := . }}
{{- if regexMatch "password|passphrase|secret|jaas|token$|private|key[.]pem|oauthbearer[.]config" $option }}
{{- fail (printf "config.kafka.options: %s is a secret, and everybody may read a ConfigMap: give it by secret.options" $option) }}
{{- end }}
{{ mustToRawJson $option }} = {{ include "tarry.tomlValue" $value }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Milliseconds of a duration such as 1h30m. */}}
{{- define "tarry.ms" -}}
{{- $units := dict "ms" 1.0 "s" 1000.0 "m" 60000.0 "h" 3600000.0 "d" 86400000.0 -}}
{{- $total := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|[dhms])" . -1 -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $total = addf $total (mulf (trimSuffix $unit . | float64) (get $units $unit)) -}}
{{- end -}}
{{- int64 $total -}}
{{- end -}}

{{/* MiB of a size such as 1GiB, rounded up. */}}
{{- define "tarry.mib" -}}
{{- $units := dict "b" 1.0 "kb" 1e3 "mb" 1e6 "gb" 1e9 "tb" 1e12 "kib" 1024.0 "mib" 1048576.0 "gib" 1073741824.0 "tib" 1099511627776.0 -}}
{{- $unit := lower . | regexFind "[a-z]+" -}}
{{- divf (mulf (lower . | trimSuffix $unit | trim | float64) (get $units $unit)) 1048576.0 | ceil | int64 -}}
{{- end -}}

{{- define "tarry.processes" -}}
{{- (.Values.config.service | default dict).processes | default 1 | int64 -}}
{{- end -}}

{{- define "tarry.group" -}}
{{- (.Values.config.service | default dict).group | default "tarry" -}}
{{- end -}}

{{/* The longest delay of an intake, in milliseconds. */}}
{{- define "tarry.longestMs" -}}
{{- include "tarry.ms" (.delay | default .max_delay | default "30d") -}}
{{- end -}}

{{/* The number of levels of an intake's overflow wheel, calculated as docs/configuration.md says. */}}
{{- define "tarry.levels" -}}
{{- $overflow := .root.Values.config.overflow | default dict -}}
{{- $from := include "tarry.ms" ($overflow.from | default "60s") | int64 -}}
{{- $width := include "tarry.ms" ($overflow.width | default "20s") | int64 -}}
{{- $size := $overflow.size | default 16 | int64 -}}
{{- $longest := include "tarry.longestMs" .intake | int64 -}}
{{- $levels := 0 -}}
{{- if gt $longest $from -}}
{{- $levels = 1 -}}
{{- $reach := mul 2 $size $width -}}
{{- range until 3 -}}
{{- if lt $reach $longest -}}
{{- $levels = add $levels 1 -}}
{{- $reach = mul $reach $size -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $levels -}}
{{- end -}}

{{- define "tarry.partitions" -}}
{{- $sum := 0 -}}
{{- range .Values.config.intake | default (list dict) -}}
{{- $sum = add $sum (.partitions | default 4 | int64) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{- define "tarry.memory" -}}
{{- if .Values.resources.memory -}}
{{- .Values.resources.memory -}}
{{- else -}}
{{- $budget := include "tarry.mib" ((.Values.config.service | default dict).memory_budget | default "1GiB") | int64 -}}
{{- $each := add $budget (.Values.resources.memoryBesideBudgetMiB | int64) -}}
{{- printf "%dMi" (add (mul (include "tarry.processes" . | int64) $each) (.Values.resources.memorySupervisorMiB | int64)) -}}
{{- end -}}
{{- end -}}

{{- define "tarry.memoryIdle" -}}
{{- $processes := include "tarry.processes" . | int64 -}}
{{- printf "%dMi" (add (mul $processes (.Values.resources.memoryBesideBudgetMiB | int64)) (.Values.resources.memorySupervisorMiB | int64)) -}}
{{- end -}}
