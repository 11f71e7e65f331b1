#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# hack/e2e.sh embedded|default [flags of ginkgo]
#
# The e2e tests on a real cluster, with the platform in one process on SQLite,
# or in three on a PostgreSQL server that this script runs on this machine.
# Much of a spec is waiting, so E2E_PROCS (2) run at a time. Specs that disturb
# other specs run alone, after them.
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"
install=${1:?embedded or default}
shift
devcluster() { go -C hack/devcluster run . "$@"; }
kubectl() { devcluster kubectl "$@"; }

if [ "${CLUSTER:-}" = current ] && [ "${E2E_DESTROY:-}" != yes ]; then
  echo "e2e: these tests delete the namespace agentplatform-system with its keys and data, and stop kube-apiserver." >&2
  echo "e2e: unset CLUSTER for a cluster of their own, or set E2E_DESTROY=yes." >&2
  exit 2
fi
devcluster up
KUBECONFIG=$(devcluster kubeconfig --path)
export KUBECONFIG

# A server in its own folder, at every address of this machine, gone at the end. Its port is
# one that the kernel gives to no outgoing connection: where such a one has it, the server
# starts all the same, listens at IPv6 alone, and every pod is refused.
as_postgres() { (cd "$data" && setpriv --reuid=postgres --regid=postgres --clear-groups "$@"); }
stop() {
  as_postgres "$bin/pg_ctl" -D "$data/db" -m immediate stop >/dev/null || true
  rm -rf "$data"
}

postgres() {
  bin=$(pg_config --bindir 2>/dev/null || ls -d /usr/lib/postgresql/*/bin | tail -1)
  data=$(mktemp -d /var/tmp/agentplatform-postgres-XXXXXX)
  password=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
  echo "$password" >"$data/password"
  chown -R postgres "$data"
  trap stop EXIT
  as_postgres "$bin/initdb" -D "$data/db" -U agentplatform --auth=scram-sha-256 --pwfile="$data/password" >/dev/null
  echo "host all all all scram-sha-256" >>"$data/db/pg_hba.conf"
  as_postgres "$bin/pg_ctl" -D "$data/db" -w -l "$data/log" \
    -o "-p 15432 -c listen_addresses=* -c unix_socket_directories=$data -c max_connections=200" start >/dev/null
  kubectl create namespace agentplatform-system --dry-run=client -o yaml | kubectl apply -f - >/dev/null
  kubectl -n agentplatform-system create secret generic agentplatform-postgres --dry-run=client -o yaml \
    --from-literal=dsn="postgres://agentplatform:$password@${E2E_NODE_ADDRESS:-10.244.0.1}:15432/postgres?sslmode=disable" |
    kubectl apply -f - >/dev/null
}
# Another installation's pods and store must not be there.
kubectl delete namespace agentplatform-system --ignore-not-found --timeout=120s >/dev/null
[ "$install" = embedded ] || postgres

E2E_TRAEFIK=$(hack/traefik.sh)
E2E_GITOPS=$(hack/gitops.sh)
export E2E_TRAEFIK E2E_GITOPS
go build -ldflags "-s -w" -o bin/e2e-runner ./test/e2e/runner
hack/platform.sh up "$install" "$PWD/bin/e2e-runner"
go tool ginkgo -procs="${E2E_PROCS:-2}" -v --timeout=60m "$@" ./test/e2e
