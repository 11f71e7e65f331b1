#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints the folder in which tests keep their databases: one in memory where there is plenty,
# for a disk is what they wait for most. What they show of processes that are killed they show
# there, too. TMPDIR says where else.
set -euo pipefail

gigabytes() { awk -v name="$1:" '$1 == name { print int($2 / 1048576) }' /proc/meminfo 2>/dev/null; }
room=$(df --output=avail -B1G /dev/shm 2>/dev/null | tail -1 | tr -d ' ')
if [ -z "${TMPDIR:-}" ] && [ "$(gigabytes MemAvailable || true)0" -ge 120 ] && [ "${room:-0}" -ge 10 ] && [ -w /dev/shm ]; then
  echo /dev/shm
else
  echo "${TMPDIR:-/tmp}"
fi
