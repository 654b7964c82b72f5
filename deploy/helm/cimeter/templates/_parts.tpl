{{- define "cimeter.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "cimeter.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "cimeter.labels" -}}
app.kubernetes.io/name: cimeter
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- /* What every container of cimeter does without. */ -}}
{{- define "cimeter.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "cimeter.probes" -}}
readinessProbe:
  httpGet: {path: /readyz, port: http}
livenessProbe:
  httpGet: {path: /healthz, port: http}
  periodSeconds: 20
{{- end -}}
