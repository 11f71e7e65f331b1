#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the figures of test/bench as JSON lines, twice: a figure that differs
# much between the rounds says little. BENCH names the benchmarks to run; arguments
# are those of test/bench, such as these for a quick look:
#   BENCH=Executed hack/bench.sh -executed.runs=2000 -executed.stored=20000
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"
KUBEBUILDER_ASSETS=${KUBEBUILDER_ASSETS:-$(go -C hack/devcluster run . envtest)}
export KUBEBUILDER_ASSETS
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for round in 1 2; do
  echo "bench: round $round of 2, about a quarter of an hour with all benchmarks" >&2
  go test -run '^$' -bench "${BENCH:-.}" -benchtime 1x -timeout 60m ./test/bench -args "$@" >"$log" 2>&1 ||
    { cat "$log" >&2; exit 1; }
  grep -o '{"name".*}' "$log"
done
