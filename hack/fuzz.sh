#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# hack/fuzz.sh [TIME]: runs every fuzz target for TIME (30s) and fails at the first input that
# breaks one; Go keeps that input in the package's testdata/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."

export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"
time=${1:-30s}
grep -rlE '^func Fuzz' --include='*_test.go' --exclude-dir=hack . | xargs -n1 dirname | sort -u | while read -r package; do
  grep -hoE '^func Fuzz\w+' "$package"/*_test.go | cut -d' ' -f2 | while read -r target; do
    echo "--- $package $target, $time"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" </dev/null
  done
done
