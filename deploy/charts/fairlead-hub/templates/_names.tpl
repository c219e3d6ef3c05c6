{{- /* Manifests, hub and RBAC share these names: one installation per cluster, in one namespace. */ -}}
{{- define "fairlead-hub.check" -}}
{{- if ne .Release.Namespace "fairlead-system" -}}
{{- fail (printf "the namespace is %s; Fairlead works in fairlead-system only: helm install fairlead-hub ... --namespace fairlead-system --create-namespace" .Release.Namespace) -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-hub.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "fairlead-hub.labels" -}}
app.kubernetes.io/name: fairlead-hub
{{- end -}}

{{- define "fairlead-hub.placement" -}}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
affinity:
{{- if .Values.affinity }}
  {{- toYaml .Values.affinity | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "fairlead-hub.labels" . | nindent 14 }}
{{- end }}
topologySpreadConstraints:
{{- if .Values.topologySpreadConstraints }}
  {{- toYaml .Values.topologySpreadConstraints | nindent 2 }}
{{- else }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "fairlead-hub.labels" . | nindent 8 }}
{{- end }}
{{- end -}}
