#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the figures of test/bench as JSON lines, each the middle one of several rounds
# that take turns with their yardstick, with how far these lie apart. BENCH names the
# benchmarks to run, "." for all that there are; arguments are those of test/bench, such
# as these for a quick look:
#   BENCH=Executed hack/bench.sh -rounds=1 -executed.runs=2000 -executed.stored=20000
# Those of Cluster come last, with the platform on a real cluster, which is brought up for
# them and goes again where there was none. BENCH=-Cluster leaves them out.
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"
devcluster() { go -C hack/devcluster run . "$@"; }
usual='Machine|Inbound|Executed|Sync|Backlog|Deliveries|Rest|Peak|Build|Activation|Loop|Script|Resume|Journal|Results|Steps|Durable'
bench=${BENCH:-$usual|Cluster}
[ "$bench" != -Cluster ] || bench=$usual
if [[ $bench =~ Memory|Objects|Garbage|\. ]] && [ -z "${KUBEBUILDER_ASSETS:-}" ]; then
  KUBEBUILDER_ASSETS=$(devcluster envtest)
  export KUBEBUILDER_ASSETS
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
case $bench in
Scale) echo "bench: two hours and 30 GB of the disk" >&2 ;;
*) echo "bench: about 25 minutes without BENCH, and 5 for a cluster" >&2 ;;
esac
go test -c -o "$work/bench" ./test/bench
"$work/bench" -test.list "$bench" | grep '^Benchmark' >"$work/names"

# Each in a process and with a server of its own, so that none is measured beside what
# another has left; each line comes as soon as it is measured.
measure() {
  (cd test/bench && "$work/bench" -test.run '^$' -test.bench "^$1\$" -test.benchtime 1x -test.timeout 300m "${@:2}") |
    tee "$work/log" | { grep --line-buffered -o '{"name".*}' || true; } || { cat "$work/log" >&2; exit 1; }
}
while IFS= read -r one; do measure "$one" "$@"; done < <(grep -v '^BenchmarkCluster' "$work/names")

grep -q '^BenchmarkCluster' "$work/names" || exit 0
if [ "${CLUSTER:-}" = current ]; then
  echo "bench: a cluster of others is left alone; unset CLUSTER for one of their own" >&2
  exit 2
fi
devcluster status >/dev/null 2>&1 || trap 'devcluster down >&2; rm -rf "$work"' EXIT
hack/platform.sh up embedded >&2
KUBECONFIG=$(devcluster kubeconfig --path)
export KUBECONFIG
while IFS= read -r one; do measure "$one" "$@"; done < <(grep '^BenchmarkCluster' "$work/names")
