#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# hack/ci-cluster.sh [all]: everything that needs a cluster, which it removes at the end.
#
# The e2e tests run whole on the installation with three processes. On the installation with one
# process run the specs that depend on the installation, then the demo. With "all" that
# installation runs every spec too, and the demo runs again and with a model service.
set -euo pipefail
cd "$(dirname "$0")/.."

scope=${1:-}
hack/e2e.sh default
if [ "$scope" = all ]; then
  hack/e2e.sh embedded --label-filter='!needs-replicas'
else
  hack/e2e.sh embedded --label-filter=per-installation
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
# demo TEXT [NAME=VALUE ...] runs the demo with these variables and looks for a text in its output.
demo() {
  local expected=$1
  shift
  echo "--- demo $*"
  env "$@" make --no-print-directory demo 2>&1 | tee "$log"
  grep -q "$expected" "$log" || { echo "ci: the demo's sync webhook did not answer \"$expected\"" >&2; exit 1; }
}
demo 'Hello Ada'

if [ "$scope" = all ]; then
  demo 'Hello Ada'
  address=${E2E_NODE_ADDRESS:-10.244.0.1}:8090
  go build -o bin/fakemodel ./test/e2e/fakemodel
  bin/fakemodel --addr "$address" &
  trap 'kill $!; rm -f "$log"' EXIT
  demo 'Hello Ada, I am fake-1' OPENAI_API_KEY=demo-key OPENAI_BASE_URL="http://$address/v1" OPENAI_MODEL=fake-1
fi

make --no-print-directory demo-down
