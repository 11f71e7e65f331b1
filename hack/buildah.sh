#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# hack/buildah.sh [NAME]
#
# Builds the Dockerfile with buildah on a base made of this machine's own
# toolchain, for machines that reach no registry (Debian: apt-get install
# buildah debootstrap). Leaves the image NAME in buildah's storage.
set -euo pipefail
cd "$(dirname "$0")/.."

name=${1:-agentplatform:buildah}
goroot=$(go env GOROOT)
work=$(mktemp -d /var/tmp/agentplatform-buildah-XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
buildah() { command buildah --storage-driver vfs "$@"; }

echo "buildah: making a base of Debian's packages and $goroot"
debootstrap --variant=minbase --include=ca-certificates,git bookworm "$work/root" >"$work/log" || { tail "$work/log"; exit 1; }
# The machine's own CAs, for those behind a proxy.
cp -a /usr/local/share/ca-certificates/. "$work/root/usr/local/share/ca-certificates/" 2>/dev/null || true
chroot "$work/root" /usr/sbin/update-ca-certificates >/dev/null
cp -a "$goroot" "$work/root/usr/local/go"
base=$(buildah from scratch)
buildah copy -q "$base" "$work/root" /
buildah config --env PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin --env GOTOOLCHAIN=local "$base"
buildah commit -q "$base" localhost/agentplatform-golang:local
buildah rm "$base" >/dev/null

echo "buildah: building the Dockerfile"
buildah bud --isolation chroot --network host --build-arg BUILDER=localhost/agentplatform-golang:local -t "$name" .

echo "buildah: looking into the image"
image=$(buildah from --pull-never "$name")
root=$(buildah mount "$image")
for command in "$root"/usr/local/bin/*; do
  if ldd "$command" >/dev/null 2>&1; then echo "buildah: $command is not static" >&2; exit 1; fi
  printf '  %-16s %s MiB, static\n' "$(basename "$command")" "$(($(stat -c %s "$command") >> 20))"
done
echo "  user $(buildah inspect --type image --format '{{.OCIv1.Config.User}}' "$name")"
buildah run --isolation chroot --user 65532:65532 "$image" -- /usr/local/bin/agentplatform --help | sed -n 1,3p
buildah rm "$image" >/dev/null
echo "buildah: $name"
