# Linerate: `make help` lists the targets.

SHELL   := /bin/bash
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo 0.1.0)
export CGO_ENABLED ?= 0
GOBUILD := go build -trimpath -ldflags "-s -w -X main.stamped=$(VERSION)"
ARGS    ?=
FUZZTIME ?= 60s

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/linerate (static)
	$(GOBUILD) -o bin/linerate ./cmd/linerate

.PHONY: arm64
arm64: ## cross-build into bin/linux-arm64/
	GOOS=linux GOARCH=arm64 $(GOBUILD) -o bin/linux-arm64/linerate ./cmd/linerate

.PHONY: armv7
armv7: ## cross-build into bin/linux-armv7/
	GOOS=linux GOARCH=arm GOARM=7 $(GOBUILD) -o bin/linux-armv7/linerate ./cmd/linerate

.PHONY: demo
demo: build ## the whole appliance in this terminal, simulated hardware (ARGS="--port 5301")
	bin/linerate demo $(ARGS)

.PHONY: packages
packages: ## install by package name what the tests need (needs root; else says what is missing)
	.ci/packages

.PHONY: test
test: packages lint build ## everything that proves the product
	@.ci/test
	@$(MAKE) --no-print-directory e2e
	@$(MAKE) --no-print-directory powercut CUTS=20

# Runs the tests of that name with virtual machines.
VMTEST = @set -o pipefail; LINERATE_VM=1 LINERATE_CUTS=$(CUTS) go test -count=1 -v -timeout 60m -run '$(1)' ./image/vm | \
	grep -vE '^\s*(=== (RUN|PAUSE|CONT|NAME)|--- PASS)|^PASS$$'
CUTS ?= 200

.PHONY: e2e
e2e: packages arm64 ## the virtual NanoPi R5S, tested from outside; pictures and times in bin/e2e/ (needs root)
	$(call VMTEST,^TestEndToEnd$$)

.PHONY: powercut
powercut: packages ## CUTS=200 power cuts of a small virtual machine while results and settings are written
	$(call VMTEST,^TestPowerCut)

.PHONY: vm
vm: arm64 ## the virtual NanoPi R5S in this terminal, port 5201 on 127.0.0.1 (needs root; ARGS="--port 5301")
	@go build -o bin/vm-box ./image/vm/box && bin/vm-box $(ARGS)

.PHONY: race
race: ## the unit tests under the race detector, without what needs root
	CGO_ENABLED=1 go test -race -short ./...

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, and the table of who may import whom
	@out=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); test -z "$$out" || { echo "gofmt would change: $$out"; exit 1; }
	go vet ./...
	go tool staticcheck ./...
	go test -count=1 -run 'TestRows|TestVocabularyIsPortable' ./appliance

.PHONY: golden
golden: ## draw the pictures in testdata anew: look at each before you commit it
	go test ./display ./cmd/linerate -update

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (60s)
	@set -e; for pkg in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "$$pkg $$target"; go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$pkg; \
	  done; done

.PHONY: bench
bench: ## throughput and CPU beside Debian's iperf3, into appliance/throughput/BENCH.md (needs root)
	go test -tags bench -run TestBench -v -count=1 -timeout 60m ./appliance/iperf3

.PHONY: soak
soak: ## 2000 tests of mixed kinds, a tenth of the clients killed
	LINERATE_SOAK=2000 go test -run TestSoak -v -count=1 -timeout 60m ./appliance/iperf3

.PHONY: suite-full
suite-full: ## the peer's own 34 commands at full length, both ways
	LINERATE_LONG=1 go test -run 'TestSuite|TestRecipesAgainstPeer' -v -count=1 -timeout 60m ./appliance/iperf3

.PHONY: clean
clean: ## remove bin/
	rm -rf bin
