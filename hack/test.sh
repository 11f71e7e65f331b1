#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs every test but e2e and clients and prints how many passed, failed and were skipped.
# Fails when one was skipped: a missing part is installed or built (PostgreSQL
# by internal/testenv, kube-apiserver by hack/devcluster), never passed over.
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"

if [ -z "${KUBEBUILDER_ASSETS:-}" ]; then
  echo "test: getting kube-apiserver and etcd (built from source where they cannot be downloaded: minutes, once)"
  KUBEBUILDER_ASSETS=$(go -C hack/devcluster run . envtest)
  export KUBEBUILDER_ASSETS
fi

memory=$(hack/tmpdir.sh)
report=$(mktemp)
trap 'rm -f "$report"' EXIT
status=0
# -p 2: each package of the API's and the controllers' tests runs its own servers.
# The scenes of test/chaos fill the machine by themselves, so they come after the others, and on a disk.
# The e2e tests need a cluster: `make e2e`. Those with programs of others need these: `make clients`.
[ $# -gt 0 ] || mapfile -t packages < <(go list ./... | grep -v -e '/test/e2e$' -e '/test/chaos$' -e '/test/clients$')
TMPDIR=$memory go test -p 2 -timeout 20m -json "${@:-${packages[@]}}" >"$report" || status=$?
[ $# -gt 0 ] || go test -timeout 20m -json ./test/chaos >>"$report" || status=$?
go run ./hack/testreport <"$report" || status=1
(cd hack/devcluster && go test ./...) || status=1
(cd hack/gitops && go test ./health) || status=1 # its other package builds for minutes
exit "$status"
