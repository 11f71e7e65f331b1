#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the folder in which tests keep their files, and the databases and etcds that they start:
# one in memory where there is plenty, for a disk is what these wait for most. What they show of
# processes that are killed they show there, too. TMPDIR says where else.
set -euo pipefail

memory=/dev/shm
least=12 # GiB that are free; tests write a few
free() { awk '$1 == "MemAvailable:" { print int($2 / 1048576) }' /proc/meminfo; }
room() { df -Pk "$memory" | awk 'NR == 2 { print int($4 / 1048576) }'; }

if [ -z "${TMPDIR:-}" ] && [ -r /proc/meminfo ] && [ -d "$memory" ] && [ -w "$memory" ] &&
  [ "$(free)" -ge "$least" ] && [ "$(room)" -ge "$least" ]; then
  echo "$memory"
else
  echo "${TMPDIR:-/tmp}"
fi
