# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2154
#
# The demo of an example but hello, sourced by hack/demo.sh: deploys the folder,
# calls it as its README does, and shows what came back and what was sent.
namespace=demo-$EXAMPLE
k() { kubectl -n "$namespace" "$@"; }

reach demo-git gitserver 18083 /received
received=$url/received
# Deliveries look no name of the cluster up; the Git server is their destination too.
destination=$(kubectl -n demo-git get service gitserver -o jsonpath='http://{.spec.clusterIP}')/received
curl -sS --noproxy '*' -X DELETE "$received"

# variables are those that the connectors of each example name, credentials the values
# of those that are in the Secret of the same name.
variables= credentials=
case $EXAMPLE in
support-triage)
  variables="{name: SHOP_URL, value: 'http://gitserver.demo-git.svc'}, {name: SHOP_TOKEN, secretKeyRef: {name: credentials, key: token}}"
  credentials="token=the-token-of-your-shop" ;;
order-lookup)
  variables="{name: ORDERS_URL, value: 'http://gitserver.demo-git.svc'}, {name: ORDERS_TOKEN, secretKeyRef: {name: credentials, key: token}}"
  credentials="token=the-token-of-your-shop" ;;
invoice-reader)
  variables="{name: ERP_URL, value: $destination/invoices}, {name: ERP_TOKEN, secretKeyRef: {name: credentials, key: token}}"
  credentials="token=the-token-of-your-erp" ;;
mail-desk)
  variables="{name: CRM_URL, value: $destination/notes}" ;;
nightly-report)
  variables="{name: REPORT_SCHEDULE, value: '* * * * *'}, {name: REPORT_TIMEZONE, value: Europe/Berlin}, {name: TEAM, value: the platform team},
    {name: CHAT_WEBHOOK_URL, secretKeyRef: {name: credentials, key: url}}"
  credentials="url=$destination/chat" ;;
release-notes)
  variables="{name: CHANGELOG_URL, value: $destination/changelog}, {name: CHANGELOG_KEY, secretKeyRef: {name: credentials, key: key}}"
  credentials="key=the-key-of-your-changelog" ;;
esac

step "applying the project: Project, Environment with its variables, Deployment"
deployment=v-$(find "examples/$EXAMPLE" -type f -print0 | sort -z | xargs -0 cat | sha256sum | cut -c1-10)
kubectl create namespace "$namespace" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
if [ -n "$credentials" ]; then
  k create secret generic credentials --from-literal="$credentials" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
fi
providers=
if [ -n "${OPENAI_API_KEY:-}" ]; then
  deployment=$deployment-openai
  k create secret generic openai --from-literal=apiKey="$OPENAI_API_KEY" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
  providers="{prefix: openai, type: OpenAI, baseURL: '${OPENAI_BASE_URL:-https://api.openai.com/v1}', apiKeySecretRef: {name: openai, key: apiKey}}"
fi
k apply -f - <<YAML
apiVersion: agentplatform.dev/v1alpha1
kind: Project
metadata: {name: project}
spec:
  displayName: $EXAMPLE
  git: {url: "http://gitserver.demo-git.svc/$EXAMPLE.git"}
  modelProviders: [$providers]
---
apiVersion: agentplatform.dev/v1alpha1
kind: Environment
metadata: {name: dev}
spec:
  variables: [$variables]
---
apiVersion: agentplatform.dev/v1alpha1
kind: Deployment
metadata: {name: $deployment}
spec:
  environment: dev
  source: {git: {branch: main}}
YAML

step "waiting until it is tested and live"
k wait --for=condition=Ready --timeout=180s project/project environment/dev
k wait --for=jsonpath='{.status.phase}'=Deployed --timeout=300s "deployment.agentplatform.dev/$deployment" ||
  { k describe adep "$deployment"; exit 1; }
if [ "$(k get adep "$deployment" -o jsonpath='{.status.live}')" != true ]; then # it was live before another was
  k patch adep "$deployment" --type=merge -p "{\"spec\":{\"activation\":{\"requestedAt\":\"$(date -u +%FT%TZ)\"}}}" >/dev/null
fi
k wait --for=condition=Live --timeout=60s "deployment.agentplatform.dev/$deployment"
for connector in "examples/$EXAMPLE"/connectors/*.yaml; do
  k wait --for=create --timeout=60s "connector/dev.$(basename "$connector" .yaml)" >/dev/null
done
k wait --for=condition=Ready --timeout=60s connector --all
k rollout status deployment.apps --timeout=120s >/dev/null

reach agentplatform-system agentplatform-gateway 18080 /healthz
gateway=$url
secret() { k get secret "dev.$1-connector" -o jsonpath='{.data.secret}' | base64 -d; }
hook() { echo "$gateway/hooks/$(k get project project -o jsonpath='{.status.id}')/$(k get conn "dev.$1" -o jsonpath='{.status.id}')"; }
post() { curl -sS --noproxy '*' --fail-with-body "$@"; echo; }

# arrived waits for what is sent, and shows it.
arrived() {
  step "what arrived at the destination in the cluster"
  for _ in $(seq 120); do
    came=$(curl -sS --noproxy '*' "$received")
    if [ "$came" != "[]" ]; then
      echo "$came"
      return
    fi
    sleep 1
  done
  k get conn,clink
  k describe conn
  exit 1
}

again= # what to go on with
case $EXAMPLE in
support-triage)
  step "a ticket is answered in the same request"
  post "$(hook tickets)" -H "X-Service-Secret: $(secret tickets)" --json '{"customer": "Ada", "subject": "Refund", "body": "I was charged twice for order 4711."}'
  step "and one with a log file"
  post "$(hook tickets)" -H "X-Service-Secret: $(secret tickets)" -F customer=Grace -F subject=Checkout -F 'body=The last page stays blank.' -F log=@examples/support-triage/tests/files/app.log
  again="curl $patient $(hook tickets) -H 'X-Service-Secret: $(secret tickets)' --json '{\"customer\": \"you\", \"subject\": \"Crash\", \"body\": \"It is broken.\"}'" ;;
order-lookup)
  step "a question is answered with data of the shop"
  post "$(hook questions)" -H "X-Service-Secret: $(secret questions)" --json '{"question": "Where is my order 4711?"}'
  again="curl $patient $(hook questions) -H 'X-Service-Secret: $(secret questions)' --json '{\"question\": \"Where is my order 4712?\"}'" ;;
ticket-pipeline)
  step "a ticket is answered in steps"
  post "$(hook tickets)" -H "X-Service-Secret: $(secret tickets)" --json '{"customer": "Ada", "body": "I was charged twice for order 4711."}'
  again="curl $patient $(hook tickets) -H 'X-Service-Secret: $(secret tickets)' --json '{\"customer\": \"you\", \"body\": \"When are you open?\"}'" ;;
invoice-reader)
  step "an invoice is taken at once"
  post "$(hook invoices)" -H "X-Service-Secret: $(secret invoices)" -F from=billing@acme.example -F invoice=@examples/invoice-reader/tests/files/invoice-4711.pdf
  arrived
  again="curl $patient $(hook invoices) -H 'X-Service-Secret: $(secret invoices)' -F from=you -F invoice=@examples/invoice-reader/tests/files/invoice-4711.pdf; curl $received" ;;
mail-desk)
  step "a mail is answered, and the CRM gets a note"
  post "$(hook mails)" -H "X-Service-Secret: $(secret mails)" --json '{"from": "ada@acme.example", "subject": "Refund", "body": "Please refund 20 euros for order 4711."}'
  arrived
  again="curl $patient $(hook mails) -H 'X-Service-Secret: $(secret mails)' --json '{\"from\": \"you\", \"subject\": \"Hello\", \"body\": \"When are you open?\"}'; curl $received" ;;
nightly-report)
  step "it comes by itself; here every minute"
  arrived
  again="curl $patient $received" ;;
release-notes)
  step "GitHub tells of a release, and signs it"
  body='{"action": "published", "release": {"tag_name": "v1.4.0", "body": "* fix the basket (#12)"}, "repository": {"full_name": "acme/shop"}}'
  signature=$(printf %s "$body" | openssl dgst -sha256 -hmac "$(secret github)" | sed 's/.* //')
  post "$(hook github)" -H 'X-GitHub-Event: release' -H "X-Hub-Signature-256: sha256=$signature" -H 'Content-Type: application/json' -d "$body"
  arrived
  again="curl $patient $received" ;;
*)
  again="kubectl -n $namespace get agents" ;;
esac

step "kubectl get agents"
k get agents

step "done in $((SECONDS - begin)) s. Go on playing:"
cat <<TEXT
$(at_hand)
$forward    $again
    kubectl -n $namespace describe adep $deployment
    make demo-down        # removes the cluster and all in it
TEXT
