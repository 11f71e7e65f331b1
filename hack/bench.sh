#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the figures of test/bench as JSON lines, each the middle one of several rounds
# that take turns with their yardstick, with how far these lie apart. BENCH names the
# benchmarks to run, "." for all that there are; arguments are those of test/bench, such
# as these for a quick look:
#   BENCH=Executed hack/bench.sh -rounds=1 -executed.runs=2000 -executed.stored=20000
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"
bench=${BENCH:-Machine|Inbound|Executed|Sync|Backlog|Rest|Peak}
if [[ $bench =~ Memory|Objects|Garbage|\. ]] && [ -z "${KUBEBUILDER_ASSETS:-}" ]; then
  KUBEBUILDER_ASSETS=$(go -C hack/devcluster run . envtest)
  export KUBEBUILDER_ASSETS
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "bench: about 20 minutes without BENCH" >&2
# Each line comes as soon as it is measured.
go test -run '^$' -bench "$bench" -benchtime 1x -timeout 120m ./test/bench -args "$@" 2>&1 |
  tee "$log" | { grep --line-buffered -o '{"name".*}' || true; } || { cat "$log" >&2; exit 1; }
