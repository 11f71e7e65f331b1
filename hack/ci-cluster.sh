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
make --no-print-directory demo-down
