#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds hack/gitops, which syncs and compares by the engine of Argo CD, and prints where
# the program is. It takes about 4 minutes on 2 cores, once: what was built stays in the
# cache.
set -euo pipefail
cd "$(dirname "$0")/gitops"

export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"
sum=$(cat ../gitops.sh go.mod go.sum ./*.go | sha256sum | cut -c1-12)
built=${XDG_CACHE_HOME:-$HOME/.cache}/agentplatform/gitops/$sum/gitops
if [ ! -x "$built" ]; then
  echo "gitops: building it from source (once; about 4 minutes)" >&2
  mkdir -p "$(dirname "$built")"
  go build -ldflags "-s -w" -o "$built.new" .
  mv "$built.new" "$built"
fi
echo "$built"
