{{/* Every word that is used in more than one template. Labels are those of orchestrator/sandbox/kubernetes/names.py. */}}

{{- define "orchestrate.labels" -}}
app.kubernetes.io/name: orchestrate
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{/* What uninstalling leaves: data, and the walls around agents that may still run. */}}
{{- define "orchestrate.keep" -}}
helm.sh/resource-policy: keep
{{- end -}}

{{/*
The pod's own configuration, from its annotation `orchestrate/config`: it is made with the pod and stays, so that a container which starts
again after an upgrade is not told what only the next version understands. Takes the file's name.
*/}}
{{- define "orchestrate.configVolume" -}}
- name: config
  downwardAPI: {items: [{path: {{ . }}, fieldRef: {fieldPath: "metadata.annotations['orchestrate/config']"}}]}
{{- end -}}

{{/* ---- namespaces */}}

{{- define "orchestrate.ns.grader" -}}{{ .Values.namespaces.grader | default (printf "%s-grader" .Values.namespaces.prefix) }}{{- end -}}
{{- define "orchestrate.ns.grading" -}}{{ .Values.namespaces.grading | default (printf "%s-grading" .Values.namespaces.prefix) }}{{- end -}}
{{- define "orchestrate.ns.root" -}}{{ .Values.namespaces.trialsRoot.name | default (printf "%s-trials-root" .Values.namespaces.prefix) }}{{- end -}}

{{/* Namespaces of trials that are not root's, as JSON. */}}
{{- define "orchestrate.ns.shards" -}}
{{- $found := list -}}
{{- if .Values.namespaces.trials.names -}}
{{- $found = .Values.namespaces.trials.names -}}
{{- else -}}
{{- range $i := until (int .Values.namespaces.trials.shards) -}}{{- $found = append $found (printf "%s-trials-%d" $.Values.namespaces.prefix $i) -}}{{- end -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/* All namespaces of trials, as JSON. */}}
{{- define "orchestrate.ns.trials" -}}
{{- $found := include "orchestrate.ns.shards" . | fromJsonArray -}}
{{- if .Values.namespaces.trialsRoot.enabled -}}{{- $found = append $found (include "orchestrate.ns.root" .) -}}{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/* Whether nodes mount images as volumes: as said, or as the cluster's version has it by itself. */}}
{{- define "orchestrate.imageVolumes" -}}
{{- $said := .Values.trials.imageVolumes -}}
{{- ternary $said (semverCompare ">=1.35-0" .Capabilities.KubeVersion.Version) (kindIs "bool" $said) -}}
{{- end -}}

{{/* Teams with their namespaces: [{name, namespace, submitters}], as JSON. */}}
{{- define "orchestrate.teams" -}}
{{- $found := list -}}
{{- range .Values.teams -}}
{{- $namespace := .namespace | default (printf "%s-drivers-%s" $.Values.namespaces.prefix .name) -}}
{{- $found = append $found (dict "name" .name "namespace" $namespace "submitters" (.submitters | default list)) -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{- define "orchestrate.ns.drivers" -}}
{{- $found := list -}}
{{- range include "orchestrate.teams" . | fromJsonArray -}}{{- $found = append $found .namespace -}}{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/* Selector of pods in namespaces by their names, which nobody but the cluster can give: takes a list. */}}
{{- define "orchestrate.in" -}}
namespaceSelector:
  matchExpressions:
    - {key: kubernetes.io/metadata.name, operator: In, values: {{ toJson . }}}
{{- end -}}

{{/* ---- pods of ours */}}

{{- define "orchestrate.podSecurity" -}}
runAsNonRoot: true
runAsUser: 64001
runAsGroup: 64001
fsGroup: 64001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "orchestrate.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "orchestrate.placement" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- if .Values.priorityClasses.create }}
priorityClassName: {{ .Values.namespaces.prefix }}-service
{{- end }}
{{- end -}}

{{/* The identity of one service in the store. Takes root and the identity's name. */}}
{{- define "orchestrate.storeEnv" -}}
{{- $secret := index .root.Values.store.secrets .name -}}
{{- if $secret }}
- {name: AWS_ACCESS_KEY_ID, valueFrom: {secretKeyRef: {name: {{ $secret }}, key: AWS_ACCESS_KEY_ID}}}
- {name: AWS_SECRET_ACCESS_KEY, valueFrom: {secretKeyRef: {name: {{ $secret }}, key: AWS_SECRET_ACCESS_KEY}}}
{{- end }}
- {name: AWS_EC2_METADATA_DISABLED, value: {{ ternary "true" "false" (ne $secret "") | quote }}}
{{- with .root.Values.store.region }}
- {name: AWS_REGION, value: {{ . }}}
{{- end }}
{{- end -}}

{{- define "orchestrate.store.url" -}}
{{- if .Values.store.bundled.enabled -}}
s3://{{ .Values.store.bundled.bucket }}/store?endpoint=http://store.{{ .Release.Namespace }}.svc:8333
{{- else -}}
{{ .Values.store.url }}
{{- end -}}
{{- end -}}

{{/* Tells a service how large its folder's volume is, where that is said in a form that it reads: takes its config, which is changed, the size, and the setting unless it is folder_bytes. */}}
{{- define "orchestrate.folderBytes" -}}
{{- $size := toString .size -}}
{{- if regexMatch "^[0-9]+(Ki|Mi|Gi|Ti|k|M|G|T)?$" $size -}}{{- $_ := set .config (.name | default "folder_bytes") $size -}}{{- end -}}
{{- end -}}

{{/* ---- addresses */}}

{{- define "orchestrate.gateways.admin" -}}
{{- $found := list -}}
{{- range $i := until (int .Values.gateway.replicas) -}}{{- $found = append $found (printf "http://gateway-%d.%s.svc:8081" $i $.Release.Namespace) -}}{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{- define "orchestrate.gateways.agent" -}}
{{- $found := list -}}
{{- range $i := until (int .Values.gateway.replicas) -}}{{- $found = append $found (printf "gateway-%d.%s.svc:8080" $i $.Release.Namespace) -}}{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/* Where the API server is for a policy: [{cidr, port}], as JSON. Asked of the cluster where nobody says. */}}
{{- define "orchestrate.apiServer" -}}
{{- $found := list -}}
{{- range .Values.apiServer.cidrs -}}{{- $found = append $found (dict "cidr" . "port" (int $.Values.apiServer.port)) -}}{{- end -}}
{{- if not $found -}}
{{- range (lookup "discovery.k8s.io/v1" "EndpointSlice" "default" "").items -}}
{{- if eq (index (.metadata.labels | default dict) "kubernetes.io/service-name" | default "") "kubernetes" -}}
{{- $port := int (index .ports 0).port -}}
{{- $bits := ternary 128 32 (eq .addressType "IPv6") -}}
{{- range .endpoints -}}{{- range .addresses -}}{{- $found = append $found (dict "cidr" (printf "%s/%d" . $bits) "port" $port) -}}{{- end -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- fail "apiServer.cidrs is empty and this command cannot ask the cluster. Give the addresses that `kubectl get endpointslices -l kubernetes.io/service-name=kubernetes` shows, for example --set apiServer.cidrs={10.0.0.1/32} --set apiServer.port=6443" -}}
{{- end -}}
{{- $found | toJson -}}
{{- end -}}

{{/* HOST:PORT that no agent may reach, tried before every trial, as JSON. */}}
{{- define "orchestrate.denied" -}}
{{- $found := .Values.network.denied -}}
{{- range include "orchestrate.apiServer" . | fromJsonArray -}}
{{- if hasSuffix "/32" .cidr -}}{{- $found = append $found (printf "%s:%d" (trimSuffix "/32" .cidr) (int .port)) -}}{{- end -}}
{{- end -}}
{{- with (lookup "v1" "Service" "default" "kubernetes").spec -}}{{- $found = append $found (printf "%s:443" .clusterIP) -}}{{- end -}}
{{- with (lookup "v1" "Service" "kube-system" "kube-dns").spec -}}{{- $found = append $found (printf "%s:53" .clusterIP) -}}{{- end -}}
{{- append $found "169.254.169.254:80" | uniq | toJson -}}
{{- end -}}

{{/* Ports of a policy towards the API server. */}}
{{- define "orchestrate.toApiServer" -}}
{{- range include "orchestrate.apiServer" . | fromJsonArray }}
- to: [{ipBlock: {cidr: {{ .cidr }}}}]
  ports: [{port: {{ int .port }}, protocol: TCP}]
{{- end }}
{{- end -}}

{{- define "orchestrate.toDns" -}}
- to:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ .Values.network.dns.namespace }}}}
      podSelector: {matchLabels: {{ toJson .Values.network.dns.podLabels }}}
  ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
{{- end -}}

{{- define "orchestrate.toStore" -}}
{{- if .Values.store.bundled.enabled }}
- to:
    - {{ include "orchestrate.in" (list .Release.Namespace) | nindent 6 | trim }}
      podSelector: {matchLabels: {app: store}}
  ports: [{port: 8333, protocol: TCP}]
{{- end }}
{{- with .Values.store.egress }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* ---- images */}}

{{/* Prefixes that pods of trials and grading may use. Every prefix ends where a name ends: evil.example/a is no prefix of evil.example/ab. */}}
{{- define "orchestrate.prefixes" -}}
{{- $found := .Values.images.prefixes -}}
{{- range list .Values.images.pod .Values.images.control (.Values.images.task | default .Values.images.control) -}}
{{- $name := regexReplaceAll "(@sha256:.*|:[^/:@]*(@sha256:.*)?)$" . "" -}}
{{- $found = concat $found (list (printf "%s:" $name) (printf "%s@" $name)) -}}
{{- end -}}
{{- $found | uniq | join " " -}}
{{- end -}}

{{/* ---- storage of a pod: takes root, the volume's name and its storage value. Nothing for pvc and hostPath, which are claims. */}}
{{- define "orchestrate.emptyDir" -}}
- name: {{ .name }}
  emptyDir: {sizeLimit: {{ .storage.size }}}
{{- end -}}

{{/* A claim template; hostPath is a PersistentVolume bound to it by name. */}}
{{- define "orchestrate.claim" -}}
- apiVersion: v1
  kind: PersistentVolumeClaim
  metadata:
    name: {{ .name }}
  spec:
    accessModes: [ReadWriteOnce]
    {{- if eq .storage.type "hostPath" }}
    storageClassName: ""
    {{- else if .storage.storageClass }}
    storageClassName: {{ .storage.storageClass }}
    {{- end }}
    resources: {requests: {storage: {{ .storage.size }}}}
{{- end -}}

{{/* Takes root, the claim's name, the path and the storage value. */}}
{{- define "orchestrate.hostVolume" -}}
apiVersion: v1
kind: PersistentVolume
metadata:
  name: {{ .root.Release.Namespace }}-{{ .claim }}
  labels: {{- include "orchestrate.labels" .root | nindent 4 }}
  annotations: {{- include "orchestrate.keep" .root | nindent 4 }}
spec:
  capacity: {storage: {{ .storage.size }}}
  accessModes: [ReadWriteOnce]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  claimRef: {apiVersion: v1, kind: PersistentVolumeClaim, name: {{ .claim }}, namespace: {{ .root.Release.Namespace }}}
  hostPath: {path: {{ .path }}, type: Directory}
  {{- with .storage.node }}
  nodeAffinity:
    required:
      nodeSelectorTerms:
        - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [{{ . }}]}]
  {{- end }}
{{- end -}}
