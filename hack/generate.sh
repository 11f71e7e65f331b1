#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Writes everything that is generated from the Go sources. Run it after a change
# of api/, of an rbac marker or of the REST facade; `make verify` fails where it
# was forgotten.
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

# The descriptions of the REST facade and of webhooks, as the facade serves them.
go run ./hack/openapi docs/openapi.json docs/webhooks.json
