#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Fails where generated files, formatting or go.mod differ from what the
# sources say, and where the description of the REST facade breaks a rule. That
# pages name files that are there is a test, in test/docs.
set -euo pipefail
cd "$(dirname "$0")/.."

before=$(git status --porcelain; git diff)
hack/generate.sh
gofmt -l -w api apiserver bundle cmd controllers hack test internal runner store webhookgw 2>/dev/null || true
go mod tidy -diff >/dev/null || { echo "verify: go.mod is not tidy; run 'go mod tidy'" >&2; exit 1; }
after=$(git status --porcelain; git diff)
if [ "$before" != "$after" ]; then
  echo "verify: these files were not up to date; run 'make generate' and commit" >&2
  git status --short >&2
  exit 1
fi
hack/lint-openapi.sh
