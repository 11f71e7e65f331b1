#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# hack/demo.sh up | down
#
# up: a cluster, the platform in it, a Git server with the folder of examples/
# that EXAMPLE names, and its webhooks, which are called; of hello, which is the
# default, one inbound and one sync webhook. May be run again. down: removes all
# of it.
#
# With OPENAI_API_KEY set (and OPENAI_BASE_URL, OPENAI_MODEL) the agents use
# that model, else the scripted one of the repository.
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"
devcluster() { go -C hack/devcluster run . "$@"; }

if [ "${1:-up}" = down ]; then
  exec go -C hack/devcluster run . down
fi

EXAMPLE=${EXAMPLE:-hello}
export EXAMPLE
if [ ! -d "examples/$EXAMPLE" ]; then
  echo "demo: there is no example \"$EXAMPLE\"; there is $(cd examples && echo */ | tr -d /)" >&2
  exit 2
fi

bold= plain=
[ -t 1 ] && bold=$(tput bold 2>/dev/null || true) plain=$(tput sgr0 2>/dev/null || true)
begin=$SECONDS last=$SECONDS
step() {
  [ "$SECONDS" = "$last" ] || echo "    ($((SECONDS - last)) s)"
  last=$SECONDS
  echo "${bold}==> $*${plain}"
}

hack/platform.sh up embedded
last=$SECONDS
KUBECONFIG=$(devcluster kubeconfig --path)
export KUBECONFIG
kubectl() { devcluster kubectl "$@"; }

# reach NAMESPACE SERVICE PORT PATH sets url to one at which this machine reaches a
# Service, which answers PATH: its own address where the cluster's network is this
# machine's, else a forwarded port.
forwards=()
trap 'for group in "${forwards[@]}"; do kill -- "-$group" 2>/dev/null || true; done' EXIT
reach() {
  url=$(kubectl -n "$1" get service "$2" -o jsonpath='http://{.spec.clusterIP}')
  if curl -sf -o /dev/null --noproxy '*' --connect-timeout 2 "$url$4"; then return; fi
  set -m # a process group of its own, to be ended as one
  kubectl -n "$1" port-forward "service/$2" "$3:80" >/dev/null &
  set +m
  forwards+=($!)
  url=http://127.0.0.1:$3
  # For the last lines, which may be pasted again: a port that answers is not forwarded again.
  forward="$forward    curl -sf -o /dev/null --noproxy '*' $url$4 || kubectl -n $1 port-forward service/$2 $3:80 >/dev/null &
"
  curl -sf -o /dev/null --noproxy '*' --retry 20 --retry-connrefused --retry-delay 1 "$url$4"
  kill -0 "${forwards[-1]}" # else another server answered at that port
}
forward=
# patient lets the curl of the last lines wait for a port that has just been forwarded.
patient="--noproxy '*' --retry 9 --retry-connrefused --retry-delay 1"

# at_hand is what makes kubectl and agentctl those of the demo.
at_hand() {
  local programs=$PWD/bin
  [ ! -x "$(dirname "$KUBECONFIG")/bin/kubectl" ] || programs=$programs:$(dirname "$KUBECONFIG")/bin
  echo "    export KUBECONFIG=$KUBECONFIG PATH=$programs:\$PATH   # agentctl, kubectl"
}

if [ "$EXAMPLE" != hello ]; then
  . hack/demo/example.sh
  exit
fi

# A model is another version of the agents, so another Deployment.
deployment=v1
if [ -n "${OPENAI_API_KEY:-}" ]; then
  deployment=$(echo "openai-${OPENAI_MODEL:-gpt-4o-mini}" | tr '[:upper:]' '[:lower:]' | tr -c 'a-z0-9\n' - | cut -c1-40)
fi

step "applying the project: Project, Environment, Deployment, Connectors, ConnectorLinks"
manifests=$(sed "s/^  name: v1$/  name: $deployment/" hack/demo/project.yaml)
if [ -n "${OPENAI_API_KEY:-}" ]; then
  kubectl create namespace demo --dry-run=client -o yaml | kubectl apply -f - >/dev/null
  kubectl -n demo create secret generic openai --from-literal=apiKey="$OPENAI_API_KEY" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
  manifests=$(echo "$manifests" | sed "s#^  displayName: Demo#&\n  modelProviders: [{prefix: openai, type: OpenAI, baseURL: '${OPENAI_BASE_URL:-https://api.openai.com/v1}', apiKeySecretRef: {name: openai, key: apiKey}}]#")
fi
echo "$manifests" | kubectl apply -f -

step "waiting until the agents are live"
kubectl -n demo wait --for=condition=Ready --timeout=180s project/project environment/dev
kubectl -n demo wait --for=jsonpath='{.status.phase}'=Deployed --timeout=300s "deployment.agentplatform.dev/$deployment" ||
  { kubectl -n demo describe adep "$deployment"; exit 1; }
if [ "$(kubectl -n demo get adep "$deployment" -o jsonpath='{.status.live}')" != true ]; then # it was live before another was
  kubectl -n demo patch adep "$deployment" --type=merge -p "{\"spec\":{\"activation\":{\"requestedAt\":\"$(date -u +%FT%TZ)\"}}}" >/dev/null
fi
kubectl -n demo wait --for=condition=Live --timeout=60s "deployment.agentplatform.dev/$deployment"
kubectl -n demo wait --for=condition=Ready --timeout=60s connector/ask connector/events clink/ask-hello clink/events-welcome
kubectl -n demo rollout status deployment.apps --timeout=120s >/dev/null # runners with another model's configuration are new ones

reach agentplatform-system agentplatform-gateway 18080 /healthz
gateway=$url
reach agentplatform-system agentplatform-api 18082 /v1/openapi.json
api=$url
secret() { kubectl -n demo get secret "$(kubectl -n demo get conn "$1" -o jsonpath='{.status.secretName}')" -o jsonpath='{.data.secret}' | base64 -d; }
hook() { echo "$gateway/hooks/$(kubectl -n demo get project project -o jsonpath='{.status.id}')/$(kubectl -n demo get conn "$1" -o jsonpath='{.status.id}')"; }

step "an inbound webhook answers with run ids at once"
curl -sS --noproxy '*' --fail-with-body -X POST "$(hook events)" -H "X-Service-Secret: $(secret events)" -H 'Content-Type: application/json' \
  -d '{"name": "Grace"}'
echo

step "a sync webhook answers with the agent's answer"
answer=$(curl -sS --noproxy '*' --fail-with-body -X POST "$(hook ask)" -H "X-Service-Secret: $(secret ask)" -H 'Content-Type: application/json' \
  -d '{"name": "Ada"}')
echo "$answer"
run=$(echo "$answer" | sed -E 's/.*"run_id":"([0-9a-f-]+)".*/\1/')

step "the same run from the REST API"
project=$(kubectl -n demo get project project -o jsonpath='{.status.id}')
kubectl -n demo delete apikey demo --ignore-not-found >/dev/null
kubectl -n demo create rolebinding demo --clusterrole=agentplatform-admin --user=demo --dry-run=client -o yaml | kubectl apply -f - >/dev/null
key=$(bin/agentctl apikey create demo -n demo --owner-user demo --quiet)
curl -sS --noproxy '*' --fail-with-body -H "Authorization: Bearer $key" "$api/v1/projects/$project/runs/$run"
echo

reach demo-git gitserver 18083 /received
git=$url

step "kubectl get agents -A"
kubectl get agents -A

step "done in $((SECONDS - begin)) s. Go on playing:"
cat <<TEXT
$(at_hand)
$forward    curl $patient -X POST $(hook ask) -H "X-Service-Secret: $(secret ask)" -H 'Content-Type: application/json' -d '{"name": "you"}'
    curl $patient -H "Authorization: Bearer $key" "$api/v1/projects/$project/agents?environment_id=$(kubectl -n demo get aenv dev -o jsonpath='{.status.id}')"
    kubectl -n demo describe adep $deployment

    # what agentctl speaks to: the key stays on this machine
    export AGENTPLATFORM_SERVER=$api AGENTPLATFORM_GATEWAY_URL=$gateway AGENTPLATFORM_PLAIN_HTTP=true
    export AGENTPLATFORM_PROJECT=$project AGENTPLATFORM_API_KEY=$key
    agentctl status
    echo '{"name": "you"}' | agentctl trigger - --connector Ask --sync

    # an agent of your own: docs/first-agent.md. This server takes what you push, under any name; in its folder:
    git push $git/mine.git main     # and spec.git.url: http://gitserver.demo-git.svc/mine.git

    make demo-down        # removes the cluster and all in it
TEXT
