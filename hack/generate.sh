#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Writes everything that is generated from the Go sources: run it after a change of api/, an rbac marker, the REST API,
# a tag in bundle/, a metric, a flag or an error code. `make verify` fails if a generated file is stale.
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"

controller_gen() { go tool -modfile=hack/tools/go.mod controller-gen "$@"; }

# Deep copies and CRDs of all kinds.
controller_gen \
  object:headerFile=hack/boilerplate.go.txt \
  crd:maxDescLen=2000,headerFile=hack/boilerplate.yaml.txt \
  paths=./api/... \
  output:crd:artifacts:config=config/crd/bases
go run ./hack/narrow config/crd/bases/*.yaml

# Roles, from the rbac markers of the controllers and of the facade.
for part in manager:controllers apiserver:apiserver; do
  controller_gen \
    "rbac:roleName=agentplatform-${part%:*},headerFile=hack/boilerplate.yaml.txt" \
    "paths=./${part#*:}/..." \
    "output:rbac:artifacts:config=config/rbac/${part%:*}"
done

# The first migration of both stores, from the templates.
go run ./hack/schema store/schema store/postgres/migrations/00001_init.sql store/sqlite/migrations/00001_init.sql

# The tables of agent keys, from the tags in bundle/.
go run ./hack/keys docs/spec/repository.md

# The descriptions of the REST facade and of webhooks, as the facade serves them.
go run ./hack/openapi docs/openapi.json docs/webhooks.json

# The Go client of the REST API.
go tool -modfile=hack/tools/go.mod oapi-codegen -config internal/restclient/oapi-codegen.yaml docs/openapi.json

# The cluster roles of project members and the reference page of the permissions.
go run ./hack/permissions config/rbac/users.yaml docs/reference/permissions.md

# Pages of docs/reference, by the tests that compare them with the code.
AGENTPLATFORM_UPDATE_REFERENCE=1 go test -count=1 -run '^TestReference_' \
  ./internal/metrics ./internal/httpserver ./internal/runerror ./runner/script ./cmd/agentctl ./cmd/agentplatform ./cmd/webhookgw ./cmd/runner/command

# Parts of docs/reference/limits.md, by the packages that declare the limits: one after another, because they share the page.
AGENTPLATFORM_UPDATE_REFERENCE=1 go test -count=1 -p 1 -run '^TestReference_' \
  ./internal/quota ./internal/httpserver ./webhookgw/ingress ./webhookgw/delivery ./webhookgw/replay ./webhookgw/push \
  ./webhookgw/dispatch ./test/docs
