#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Everything that needs a cluster: the e2e tests with both installations, the
# demo twice on the same cluster, and then the cluster goes and leaves nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

hack/e2e.sh default
hack/e2e.sh embedded

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for round in first second; do
  echo "--- demo, $round round"
  make --no-print-directory demo 2>&1 | tee "$log"
  grep -q 'Hello Ada' "$log" || { echo "ci: the sync webhook did not answer with the agent's greeting" >&2; exit 1; }
done

echo "--- demo, with a model service"
go build -o bin/fakemodel ./test/e2e/fakemodel
bin/fakemodel --addr "${E2E_NODE_ADDRESS:-10.244.0.1}:8090" &
fake=$!
trap 'kill $fake; rm -f "$log"' EXIT
OPENAI_API_KEY=demo-key OPENAI_BASE_URL="http://${E2E_NODE_ADDRESS:-10.244.0.1}:8090/v1" OPENAI_MODEL=fake-1 \
  make --no-print-directory demo 2>&1 | tee "$log"
grep -q 'Hello Ada, I am fake-1' "$log" || { echo "ci: the answer is not the model service's" >&2; exit 1; }

make --no-print-directory demo-down
