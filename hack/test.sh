#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every test but e2e, clients and the scenes of chaos. Prints how many passed, failed and
# were skipped, and the slowest. Fails if a test was skipped: missing parts are installed or built
# (PostgreSQL by internal/testenv, kube-apiserver by hack/devcluster).
#
#   hack/test.sh [packages]   all packages, or the named ones
#   RACE=yes                  all packages, and then the race detector over the packages and the
#                             promises of the store that run goroutines; needs a C compiler
#   RACE=only                 the race detector alone; packages cannot be named with either
#   AGENTPLATFORM_NIGHTLY=1   the thorough form of the tests that check a sample otherwise
#
# docs/testing.md says what to run for a change of each folder.
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
# The packages whose goroutines share memory. The other packages run either on one goroutine or on
# those of a library.
concurrent=(./store/... ./webhookgw/... ./runner/serve/... ./runner/engine/...)
# What databases plan and how much memory is taken: under the race detector the first is the same
# and would take as long as all the rest, and the second says nothing.
measuring='^TestPlans|^TestResults_UseNoMemory$'
# `make chaos` and `make bench` run these; `make nightly` runs the second as a test.
elsewhere='^TestScenes_|^TestRows_'

report=$(mktemp)
trap 'rm -f "$report"' EXIT
memory=$(hack/tmpdir.sh)
status=0
# -p 2: packages start servers of their own, so more of them at a time use more memory than they save time.
run() { TMPDIR=$memory go test -p 2 -json -skip "$elsewhere" "$@" >>"$report" || status=$?; }

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
  run -timeout 20m "${packages[@]}"
fi
if [ "$race" != no ]; then
  # SQLite and its libc are C that was translated to Go; instrumented they take four times as long.
  CGO_ENABLED=1 run -race -timeout 45m -skip "$elsewhere|$measuring" \
    -gcflags='modernc.org/sqlite/lib=-race=false' -gcflags='modernc.org/libc/...=-race=false' "${concurrent[@]}"
fi
go run ./hack/testreport -slowest 20 <"$report" || status=1
if [ "$race" != only ]; then
  (cd hack/devcluster && go test ./...) || status=1
  (cd hack/gitops && go test ./health) || status=1 # its other package builds for minutes
fi
exit "$status"
