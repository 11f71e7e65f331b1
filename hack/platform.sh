#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# hack/platform.sh up embedded|default [RUNNER]
#     a cluster, the image in it, the platform, and a Git server with the
#     folder of examples/ that EXAMPLE names (hello). RUNNER is another binary
#     for the image's runner.
# hack/platform.sh install embedded|default
#     the platform alone, again: the image and the Git server are there
#
# default runs on the PostgreSQL of the Secret agentplatform-postgres. Both are
# installed by hack/platform/, which opens private ranges: the Git server and the
# models of tests are in the cluster's network.
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"
example=${EXAMPLE:-hello}
devcluster() { go -C hack/devcluster run . "$@"; }
kubectl() { devcluster kubectl "$@"; }

begin=$SECONDS
step() {
  [ "$SECONDS" = "$begin" ] || echo "    ($((SECONDS - begin)) s)"
  begin=$SECONDS
  echo "==> $*"
}

cluster() {
  step "bringing up a Kubernetes cluster (the first time it may be built from source: 5 to 15 minutes)"
  devcluster up
  step "building the image and loading it into the cluster"
  make --no-print-directory build
  RUNNER="${1:-}" hack/image.sh agentplatform:dev bin/image.tar
  go build -ldflags "-s -w" -o bin/gitserver ./hack/gitserver
  devcluster write-image --name agentplatform-gitserver:dev --out "$PWD/bin/gitserver.tar" \
    --entrypoint /gitserver "$PWD/bin/gitserver=/gitserver"
  devcluster load-image "$PWD/bin/image.tar" "$PWD/bin/gitserver.tar"
}

install_embedded() {
  step "installing Agent Platform (config/embedded: one process, SQLite on a volume)"
  alone deployment
  apply_config embedded
  rollout statefulset/agentplatform
}

install_default() {
  step "installing Agent Platform (config/default: manager, facade and gateway on PostgreSQL)"
  alone statefulset
  apply_config default
  rollout deployment/agentplatform-manager deployment/agentplatform-apiserver deployment/agentplatform-webhookgw
}

# alone removes the other installation's workloads, which would share its name.
alone() {
  local found
  found=$(kubectl -n agentplatform-system get "$1" -l app.kubernetes.io/name=agentplatform -o name)
  [ -n "$found" ] || return 0
  if [ "${CLUSTER:-}" = current ]; then
    echo "platform: another installation runs in this cluster ($found); remove it first" >&2
    exit 1
  fi
  echo "$found" | xargs -r go -C hack/devcluster run . kubectl -n agentplatform-system delete >/dev/null
}

apply_config() {
  kubectl apply --server-side --force-conflicts -f "$PWD/config/crd/bases" >/dev/null
  kubectl apply --server-side --force-conflicts -k "$PWD/hack/platform/$1" >/dev/null
}

# rollout: a new image is a new pod.
rollout() {
  local image
  image=$(sha256sum bin/image.tar | cut -c1-12)
  for workload in "$@"; do
    kubectl -n agentplatform-system patch "$workload" --type=merge -p \
      "{\"spec\":{\"template\":{\"metadata\":{\"annotations\":{\"agentplatform.dev/image\":\"$image\"}}}}}" >/dev/null
  done
  for workload in "$@"; do
    kubectl -n agentplatform-system rollout status "$workload" --timeout=180s || { why; exit 1; }
  done
}

# why prints what is known of pods that do not become ready.
why() {
  kubectl -n agentplatform-system get pods -o wide
  kubectl -n agentplatform-system get events --sort-by=.lastTimestamp | tail -40
  kubectl -n agentplatform-system get pods -o name | while read -r pod; do
    echo "--- $pod"
    kubectl -n agentplatform-system logs "$pod" --tail=30 || true
    kubectl -n agentplatform-system logs "$pod" --tail=30 --previous 2>/dev/null || true
  done
} >&2

gitserver() {
  step "starting a Git server in the cluster with examples/$example"
  local sources
  sources=$(mktemp -d)
  (cd "examples/$example" && find . -type f | while read -r file; do
    cp "$file" "$sources/$(echo "${file#./}" | sed 's,/,__,g')"
  done)
  if [ -n "${OPENAI_API_KEY:-}" ]; then
    sed -i "s#model: scripted/[a-z-]*#model: openai/${OPENAI_MODEL:-gpt-4o-mini}#" "$sources"/agents__*.yaml
    rm -f "$sources"/tests__* # they expect the words of the scripts
  fi
  kubectl apply -f "$PWD/hack/demo/gitserver.yaml" >/dev/null
  kubectl -n demo-git create configmap source --from-file="$sources" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
  rm -rf "$sources"
  kubectl -n demo-git rollout restart deployment gitserver >/dev/null
  kubectl -n demo-git rollout status deployment gitserver --timeout=120s
}

case "${1:-} ${2:-}" in
  # Not joined by &&, which would switch off set -e in all but the last.
  "up embedded") cluster "${3:-}"; install_embedded; gitserver ;;
  "up default") cluster "${3:-}"; gitserver; install_default ;;
  "install embedded") install_embedded ;;
  "install default") install_default ;;
  *) sed -n '4,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
