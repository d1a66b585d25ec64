# Targets for people and for CI. `make` alone lists them.

# What brings a dependency of its own is a module of its own, with the root beside it.
EXAMPLES := $(wildcard examples/*/go.mod)
BROWSER := internal/compare/report/browser

GOLANGCI_LINT ?= $(or $(shell command -v golangci-lint),$(shell go env GOPATH)/bin/golangci-lint)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  ARGS='...' is passed on by demo, compare, comparison, test and bench."

.PHONY: demo
demo: ## show on real servers that PostgreSQL refuses a stale writer
	@scripts/ensure-services.sh demo >/dev/null
	@go run ./cmd/fencepost demo $(ARGS)

.PHONY: compare
compare: ## run the same work under each way of coordinating it, and count what is lost
	@scripts/ensure-services.sh demo >/dev/null
	@go run ./cmd/fencepost compare $(ARGS)

.PHONY: comparison
comparison: ## make the page, the JSON and the tables of docs/comparison.md anew
	@scripts/comparison.sh $(ARGS)

.PHONY: test
test: ## run all tests on real servers, with the race detector
	@scripts/test.sh $(ARGS)

.PHONY: test-examples
test-examples: ## test the examples that are modules of their own
	@set -e; for file in $(EXAMPLES); do cd $(CURDIR)/$$(dirname $$file); go test -race -count=1 -timeout=5m ./... $(ARGS); done

.PHONY: test-browser
test-browser: ## open the page of the comparison in headless Chromium
	@cd $(BROWSER) && go test -race -count=1 -timeout=5m ./... $(ARGS)

.PHONY: lint
lint: ## run golangci-lint
	$(GOLANGCI_LINT) run ./...
	@set -e; for file in $(EXAMPLES) $(BROWSER)/go.mod; do cd $(CURDIR)/$$(dirname $$file); $(GOLANGCI_LINT) run ./...; done

.PHONY: bench
bench: ## measure against hand-written code, as ratios
	@go run ./internal/bench $(ARGS)

.PHONY: bench-peers
bench-peers: ## measure the lease beside other lock libraries
	@cd bench && BENCH_JSON='$(abspath $(BENCH_JSON))' go run . $(ARGS)

.PHONY: images
images: ## build PostgreSQL and Redis images from Debian packages (root, debootstrap)
	@scripts/images.sh
