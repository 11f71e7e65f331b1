#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Judges docs/openapi.json by the rules of redocly.yaml; any finding fails.
# Installs Node.js from the system's packages where it is absent.
set -euo pipefail
cd "$(dirname "$0")/.."

redocly=2.77.0
if ! command -v npx >/dev/null; then
  echo "lint-openapi: installing nodejs and npm, which the linter of the API description needs" >&2
  as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  if ! { "${as_root[@]}" apt-get update -q && "${as_root[@]}" apt-get install -qy nodejs npm; } >/dev/null; then
    echo "lint-openapi: that failed; install Node.js 20 or newer with npm and run this again" >&2
    exit 1
  fi
fi
export REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true
out=$(npx --yes "@redocly/cli@$redocly" lint --format=stylish 2>&1) || { echo "$out" >&2; exit 1; }
if grep -qE '[0-9]+ (warning|error)' <<<"$out"; then
  echo "$out" >&2
  exit 1
fi
