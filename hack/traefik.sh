#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds Traefik from its Go modules and prints the folder where it is: traefik, and the
# CRDs of Traefik (crds.yaml) and of the Gateway API (gateway.yaml) of the same versions.
# It takes about 3 minutes on 2 cores, once: what was built stays in the cache.
set -euo pipefail
cd "$(dirname "$0")/traefik"

export CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"
sum=$(cat ../traefik.sh go.mod go.sum ext/* dns/* | sha256sum | cut -c1-12)
built=${XDG_CACHE_HOME:-$HOME/.cache}/agentplatform/traefik/$sum
if [ -x "$built/traefik" ]; then
  echo "$built"
  exit
fi

# A module for the proxy's checksums to judge, then a copy that can be written.
echo "traefik: building it from source (once; about 3 minutes)" >&2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r go.mod go.sum ext "$work"
lego=$(awk '$1 == "github.com/go-acme/lego/v5" { print $1 "@" $2 }' go.mod)
cp -r --no-preserve=mode "$(cd "$work/.." && GOWORK=off go mod download -json "$lego" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')" "$work/lego"
find "$work/lego/providers/dns" -mindepth 1 -delete
cp dns/dns.go "$work/lego/providers/dns/dns.go"

cd "$work"
go build -ldflags "-s -w" -o "$work/out/traefik" github.com/traefik/traefik/v3/cmd/traefik
module() { go list -m -f '{{.Dir}}' "$1"; }
cp "$(module github.com/traefik/traefik/v3)/docs/content/reference/dynamic-configuration/kubernetes-crd-definition-v1.yml" out/crds.yaml
for kind in gatewayclasses gateways httproutes grpcroutes referencegrants backendtlspolicies listenersets tlsroutes tcproutes udproutes; do
  echo "---"
  cat "$(module sigs.k8s.io/gateway-api)/config/crd/standard/gateway.networking.k8s.io_$kind.yaml"
done >out/gateway.yaml
chmod -R u+w out
mkdir -p "$(dirname "$built")"
rm -rf "$built"
mv out "$built"
echo "$built"
