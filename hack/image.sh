#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# hack/image.sh NAME ARCHIVE: packs the static binaries of bin/ and the
# machine's CA certificates into an image archive (the Dockerfile makes the
# same image where a container engine is at hand). RUNNER is another binary to be
# the image's runner.
set -euo pipefail
cd "$(dirname "$0")/.."
name=$1 archive=$2

certificates=
for file in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
  [ -e "$file" ] && certificates=$file && break
done
[ -n "$certificates" ] || { echo "image: no CA certificates found; install the package ca-certificates" >&2; exit 1; }

files=("$certificates=/etc/ssl/certs/ca-certificates.crt")
for command in cmd/*/; do
  command=$(basename "$command")
  binary=$PWD/bin/$command
  [ "$command" != runner ] || binary=${RUNNER:-$binary}
  [ -f "$binary" ] && files+=("$binary=/usr/local/bin/$command")
done
mkdir -p "$(dirname "$archive")"
go -C hack/devcluster run . write-image --name "$name" --out "$(realpath "$archive")" \
  --entrypoint /usr/local/bin/agentplatform --env PATH=/usr/local/bin --env SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt "${files[@]}"
echo "image: $name in $archive"
