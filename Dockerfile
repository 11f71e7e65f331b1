# SPDX-License-Identifier: Apache-2.0

# BUILDER is any image with Go 1.26 and git; `make image` makes the same image
# without a container engine. A release says RELEASE=1 and names BUILDER by digest,
# so that what it was built with can be had again. The image itself stands on
# nothing.
ARG BUILDER=golang:1.26-bookworm
FROM ${BUILDER} AS build
ARG BUILDER
ARG RELEASE=
ARG VERSION=dev
RUN case "$RELEASE:$BUILDER" in \
      :* | *@sha256:????????????????????????????????????????????????????????????????) ;; \
      *) echo "a release names its builder by digest: --build-arg BUILDER=golang:1.26-bookworm@sha256:…" >&2; exit 1 ;; \
    esac
WORKDIR /src
ENV CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false"
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN for main in cmd/*/main.go; do \
      command=$(basename "$(dirname "$main")"); \
      go build -ldflags "-s -w -X github.com/agentplatform/agentplatform/internal/metrics.version=$VERSION" -o "/out/$command" "./cmd/$command" || exit 1; \
    done

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /usr/local/bin/
ENV PATH=/usr/local/bin SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
USER 65532:65532
ENTRYPOINT ["/usr/local/bin/agentplatform"]
