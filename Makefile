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
help: ## Print this help.
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: generate
generate: ## Write deep copies, CRDs, roles, docs/openapi.json and docs/webhooks.json from the Go sources.
	hack/generate.sh

.PHONY: lint
lint: bin/golangci-lint ## Check style, import rules, size budget, form of tests and plain English.
	go vet ./...
	bin/golangci-lint run ./...
	go run ./hack/budget
	go run ./hack/subtests
	go run ./hack/language

bin/golangci-lint: hack/tools/lint/go.mod
	@echo "building golangci-lint (a minute or five, once)"
	go build -C hack/tools/lint -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: test
test: ## Run all tests except e2e, clients and chaos; install or build PostgreSQL and kube-apiserver if missing.
	hack/test.sh

.PHONY: race
race: ## Run the store, gateway and runner tests under the race detector (needs a C compiler).
	RACE=only hack/test.sh

.PHONY: clients
clients: ## Test gateway and REST API with curl, Node, Python, Chromium, h2load, openssl and generated clients.
	go test -count=1 -timeout 15m -v ./test/clients

.PHONY: verify
verify: ## Check that generated files, formatting and go.mod are up to date; lint docs/openapi.json.
	hack/verify.sh

.PHONY: build
build: $(COMMANDS:%=bin/%) ## Build all commands into bin/.

.PHONY: $(COMMANDS:%=bin/%)
$(COMMANDS:%=bin/%):
	go build -ldflags "$(LDFLAGS)" -o $@ ./cmd/$(@F)

.PHONY: image
image: build ## Write the image archive bin/image.tar without a container engine.
	hack/image.sh $(IMAGE) bin/image.tar

EXAMPLE ?= hello

.PHONY: demo
demo: ## Create a cluster with the platform and an example (EXAMPLE=hello), and call its webhooks.
	EXAMPLE=$(EXAMPLE) hack/demo.sh up

.PHONY: demo-down
demo-down: ## Remove the demo cluster.
	hack/demo.sh down

.PHONY: e2e
e2e: ## Test the platform on a real cluster: one process on SQLite, then three on PostgreSQL.
	hack/e2e.sh embedded
	hack/e2e.sh default

.PHONY: nightly
nightly: ## Run the full form of the checks that CI samples: race detector, both installations, chaos, fuzzing (3 h).
	AGENTPLATFORM_NIGHTLY=1 RACE=yes hack/test.sh
	go test -count=1 -timeout 30m ./test/bench -run TestRows_
	go test -count=1 -timeout 60m ./runner/engine -run '^TestResume_(AtEachEntry|AfterEachFailedAppend)$$' -args -rapid.checks=10000
	$(MAKE) clients lint verify
	hack/fuzz.sh
	$(MAKE) chaos
	hack/ci-cluster.sh all

CHAOS = go test -count=1 -timeout 90m -v ./test/chaos -run TestScenes_ -args
COMMIT = $(shell git rev-parse HEAD 2>/dev/null)

.PHONY: chaos
chaos: ## Break the platform in twelve ways under load; check that each accepted event exists exactly once (15 min).
	$(CHAOS) -chaos.accepted=100000 -chaos.kills=20 -chaos.outage=10m -chaos.pace=200

.PHONY: chaos-short
chaos-short: ## Run four chaos scenes, chosen by the commit, with fewer requests (3 min).
	$(CHAOS) -chaos.scenes=4 -chaos.seed=$(COMMIT) -chaos.accepted=2000 -chaos.kills=20 -chaos.outage=1m

.PHONY: bench
bench: ## Measure webhooks, runs and memory against baselines of the same run; prints JSON lines (30 min).
	@hack/bench.sh

.PHONY: bench-scale
bench-scale: ## Measure the cost of ten million stored runs on PostgreSQL and two million on SQLite (2 h).
	@BENCH=Scale hack/bench.sh
