#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every test but e2e, clients and the scenes of chaos, and prints how many passed, failed and
# were skipped. Fails when one was skipped: a missing part is installed or built (PostgreSQL by
# internal/testenv, kube-apiserver by hack/devcluster), never passed over.
#
#   hack/test.sh [packages]   all of them, or these
#   RACE=yes                  the store, the gateway and the runner under the race detector, which
#                             needs a C compiler, and the others without
#   RACE=only                 those alone; packages cannot be named with either
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"
race=${RACE:-no}
case "$race:$#" in
no:* | yes:0 | only:0) ;;
*)
  echo "test: RACE is yes, only or no, and packages can be named where it is no" >&2
  exit 2
  ;;
esac
concurrent=(./store/... ./webhookgw/... ./runner/serve/... ./runner/engine/...)
# What databases plan and how much memory is taken: under the race detector the first is the same
# and would take as long as all the rest, and the second says nothing.
measuring='^TestPlans|^TestResultsTakeNoMemory$'

report=$(mktemp)
trap 'rm -f "$report"' EXIT
memory=$(hack/tmpdir.sh)
status=0
# -p 2: each package of the API's and the controllers' tests runs its own servers.
# The scenes of chaos fill the machine by themselves, for minutes: `make chaos-short`.
run() { TMPDIR=$memory go test -p 2 -json -skip '^TestScenes$' "$@" >>"$report" || status=$?; }

if [ "$race" != no ]; then
  # What SQLite and its libc are in C is as little looked into as C is: it would take four times as
  # long as it does.
  CGO_ENABLED=1 run -race -timeout 45m -skip "$measuring" \
    -gcflags='modernc.org/sqlite/lib=-race=false' -gcflags='modernc.org/libc/...=-race=false' "${concurrent[@]}"
fi
if [ "$race" != only ]; then
  if [ -z "${KUBEBUILDER_ASSETS:-}" ]; then
    echo "test: getting kube-apiserver and etcd (built from source where they cannot be downloaded: minutes, once)"
    KUBEBUILDER_ASSETS=$(go -C hack/devcluster run . envtest)
    export KUBEBUILDER_ASSETS
  fi
  packages=("$@")
  if [ $# -eq 0 ]; then
    # The e2e tests need a cluster: `make e2e`. Those with programs of others need these: `make clients`.
    mapfile -t packages < <(go list ./... | grep -v -e '/test/e2e$' -e '/test/clients$')
  fi
  if [ "$race" = yes ]; then
    run -timeout 20m -run "$measuring" "${concurrent[@]}"
    mapfile -t packages < <(printf '%s\n' "${packages[@]}" | grep -vxF -f <(go list "${concurrent[@]}"))
  fi
  run -timeout 20m "${packages[@]}"
fi
go run ./hack/testreport <"$report" || status=1
if [ "$race" != only ]; then
  (cd hack/devcluster && go test ./...) || status=1
  (cd hack/gitops && go test ./health) || status=1 # its other package builds for minutes
fi
exit "$status"
