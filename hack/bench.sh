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
bench=${BENCH:-Machine|Inbound|Executed|Sync|Backlog|Deliveries|Rest|Peak|Build|Activation}
if [[ $bench =~ Memory|Objects|Garbage|\. ]] && [ -z "${KUBEBUILDER_ASSETS:-}" ]; then
  KUBEBUILDER_ASSETS=$(go -C hack/devcluster run . envtest)
  export KUBEBUILDER_ASSETS
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "bench: about 25 minutes without BENCH" >&2
go test -c -o "$work/bench" ./test/bench
cd test/bench
# Each in a process and with a server of its own, so that none is measured beside what
# another has left; each line comes as soon as it is measured.
while IFS= read -r one; do
  "$work/bench" -test.run '^$' -test.bench "$one" -test.benchtime 1x -test.timeout 120m "$@" 2>&1 |
    tee "$work/log" | { grep --line-buffered -o '{"name".*}' || true; } || { cat "$work/log" >&2; exit 1; }
done < <("$work/bench" -test.list "$bench" | grep '^Benchmark' | sed 's/.*/^&$/')
