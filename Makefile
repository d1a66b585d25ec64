# Targets for people and for CI. `make` alone lists them.

# A part that brings a dependency of its own is a module of its own, beside the root module.
EXAMPLES := $(wildcard examples/*/go.mod)
BROWSER := bench/compare/report/browser

GOLANGCI_LINT ?= $(or $(shell command -v golangci-lint),$(shell go env GOPATH)/bin/golangci-lint)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "  ARGS='...' is passed on by demo, compare, comparison, test, bench and torture."

.PHONY: build
build: ## build the command-line tool as bin/fencepost: static, with its version, commit and date
	@scripts/build.sh bin/fencepost

.PHONY: image
image: ## build the image of the tool, fencepost:local, from what this machine has (docker)
	@scripts/tool-image.sh $(ARGS)

.PHONY: demo
demo: build ## show on real servers that PostgreSQL refuses a stale writer
	@scripts/ensure-services.sh demo >/dev/null
	@bin/fencepost demo $(ARGS)

.PHONY: compare
compare: build ## run the same work under each way of coordinating it, and count what is lost
	@scripts/ensure-services.sh demo >/dev/null
	@bin/fencepost compare $(ARGS)

.PHONY: comparison
comparison: ## make the page, the JSON and the tables of docs/comparison.md
	@scripts/comparison.sh $(ARGS)

.PHONY: test
test: ## run all tests on real servers, with the race detector; SUITE=bullseye: inside that image, without
	@FENCEPOST_TEST_SUITE=$(SUITE) scripts/test.sh $(ARGS)

.PHONY: test-examples
test-examples: ## test the examples that are modules of their own
	@set -e; for file in $(EXAMPLES); do cd $(CURDIR)/$$(dirname $$file); go test -race -count=1 -timeout=5m ./... $(ARGS); done

.PHONY: test-browser
test-browser: ## open the pages of the comparison and of fencepost serve in headless Chromium
	@cd $(BROWSER) && go test -race -count=1 -timeout=5m ./... $(ARGS)

.PHONY: lint
lint: ## run golangci-lint in every module
	@scripts/modules.sh $(GOLANGCI_LINT) run ./...

# The benchmarks run in another folder, so the file for the figures needs a full path.
.PHONY: bench
bench: ## measure against hand-written code, as ratios; BENCH_JSON=FILE: also as JSON
	@BENCH_JSON='$(abspath $(BENCH_JSON))' go run -C bench . library $(ARGS)

.PHONY: bench-peers
bench-peers: ## measure the lease beside other lock libraries; BENCH_JSON=FILE: also as JSON
	@BENCH_JSON='$(abspath $(BENCH_JSON))' go run -C bench . peers $(ARGS)

# The faults need servers that are processes of this machine.
.PHONY: torture
torture: ## break things at random while workers work, and check every operation; ARGS=--help lists the settings
	@FENCEPOST_SERVICES=local go run -C bench ./torture $(ARGS)

.PHONY: torture-report
torture-report: ## torture all modes and workloads, and write docs/torture.json and the table of docs/safety.md
	@FENCEPOST_SERVICES=local go run -C bench ./torture --mode all --json '$(CURDIR)/docs/torture.json' --markdown '$(CURDIR)/docs/safety.md' $(ARGS)

.PHONY: images
images: ## build images of PostgreSQL, Redis and Valkey from the packages of a Debian release, SUITE=bookworm or all (root, debootstrap)
	@scripts/images.sh $(SUITE)
