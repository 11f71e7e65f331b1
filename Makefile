# SPDX-License-Identifier: Apache-2.0

# One set of flags for tests and image, so that each package compiles once.
export CGO_ENABLED = 0
export GOFLAGS = -trimpath -buildvcs=false

VERSION   ?= dev
LDFLAGS    = -s -w -X github.com/agentplatform/agentplatform/internal/metrics.version=$(VERSION)
IMAGE     ?= agentplatform:dev
COMMANDS   = $(filter-out internal,$(notdir $(wildcard cmd/*)))
DEVCLUSTER = go -C hack/devcluster run .

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print this list.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: generate
generate: ## Write deep copies, CRDs, roles, docs/openapi.json and docs/webhooks.json from the Go sources.
	hack/generate.sh

.PHONY: lint
lint: bin/golangci-lint ## Check style, import walls, the size budget and the form of tests.
	go vet ./...
	bin/golangci-lint run ./...
	go run ./hack/budget
	go run ./hack/subtests

bin/golangci-lint: hack/tools/lint/go.mod
	@echo "building golangci-lint (a minute or five, once)"
	go build -C hack/tools/lint -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: test
test: ## Run all tests but e2e, clients and chaos, on a real kube-apiserver and PostgreSQL; installs or builds what is missing.
	hack/test.sh

.PHONY: race
race: ## Run the store, gateway and runner tests under the race detector (needs a C compiler).
	RACE=only hack/test.sh

.PHONY: clients
clients: ## Test gateway and REST API with programs of others: curl, Node, Python, Chromium, h2load, openssl; npm and Go generate clients.
	go test -count=1 -timeout 15m -v ./test/clients

.PHONY: verify
verify: ## Fail where generated files, formatting or go.mod are not up to date; judge docs/openapi.json.
	hack/verify.sh

.PHONY: build
build: $(COMMANDS:%=bin/%) ## Build all commands into bin/.

.PHONY: $(COMMANDS:%=bin/%)
$(COMMANDS:%=bin/%):
	go build -ldflags "$(LDFLAGS)" -o $@ ./cmd/$(@F)

.PHONY: image
image: build ## Write the image archive bin/image.tar; no container engine is needed.
	hack/image.sh $(IMAGE) bin/image.tar

EXAMPLE ?= hello

.PHONY: demo
demo: ## Bring up a cluster with the platform and the agents of an example (EXAMPLE=hello), and call their webhooks.
	EXAMPLE=$(EXAMPLE) hack/demo.sh up

.PHONY: demo-down
demo-down: ## Remove the demo's cluster and all in it.
	hack/demo.sh down

.PHONY: e2e
e2e: ## Test the platform on a real cluster: in one process on SQLite, then in three on PostgreSQL.
	hack/e2e.sh embedded
	hack/e2e.sh default

.PHONY: nightly
nightly: ## Everything that CI checks a part of: the race detector over all promises of the store, both installations whole, all scenes of chaos, fuzzing (three hours).
	AGENTPLATFORM_NIGHTLY=1 RACE=yes hack/test.sh
	go test -count=1 -timeout 30m ./test/bench -run TestRowsWork
	$(MAKE) clients lint verify
	hack/fuzz.sh
	$(MAKE) chaos
	hack/ci-cluster.sh all

CHAOS = go test -count=1 -timeout 90m -v ./test/chaos -run TestScenes -args
COMMIT = $(shell git rev-parse HEAD 2>/dev/null)

.PHONY: chaos
chaos: ## Break the platform in twelve ways under load and compare the books: what was answered 2xx is there, once (a quarter of an hour).
	$(CHAOS) -chaos.accepted=100000 -chaos.kills=20 -chaos.outage=10m -chaos.pace=200

.PHONY: chaos-short
chaos-short: ## Play four scenes that the commit chooses, one of them the kill of everything, with fewer requests and a minute without a database (three minutes).
	$(CHAOS) -chaos.scenes=4 -chaos.seed=$(COMMIT) -chaos.accepted=2000 -chaos.kills=20 -chaos.outage=1m

.PHONY: bench
bench: ## Measure webhooks, runs and memory against yardsticks of the same run, some on a real cluster; JSON lines (30 minutes).
	@hack/bench.sh

.PHONY: bench-scale
bench-scale: ## Measure what ten million stored runs cost on PostgreSQL, and two million on SQLite; JSON lines (two hours).
	@BENCH=Scale hack/bench.sh
