#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# The whole path on a real cluster: the demo twice, then a namespace with all
# kinds goes within 60 s, then the cluster goes and leaves nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

log=$(mktemp)
trap 'rm -f "$log"' EXIT
for round in first second; do
  echo "--- demo, $round round"
  make --no-print-directory demo 2>&1 | tee "$log"
  grep -q 'Hello Ada' "$log" || { echo "ci: the sync webhook did not answer with the agent's greeting" >&2; exit 1; }
done

echo "--- the namespace goes, without finalizers"
KUBECONFIG=$(go -C hack/devcluster run . kubeconfig --path)
export KUBECONFIG
go -C hack/devcluster run . kubectl delete namespace demo --timeout=60s

make --no-print-directory demo-down
