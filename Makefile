# The project's commands. `make run` and `make test` are all that most need.
GO ?= go
# The version comes from git; a checkout without git still builds.
VCS := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo true || echo false)
export CGO_ENABLED = 0
# What tests a package, and apart from it what meters whole builds on real
# daemons and kernels: that wants the machine for itself.
UNITS = $$($(GO) list ./... | grep -v -e /e2e -e /bench)

.PHONY: all build run test tools vet lint bench load fuzz e2e golden package image install release clean
all: build

build: ## the static binary: bin/cimeter
	$(GO) build -trimpath -buildvcs=$(VCS) -o bin/cimeter ./cmd/cimeter

run: build ## meter a sample build (cimeter vetting, compiling and testing a part of itself)
	scripts/sample-build.sh bin/cimeter

test: ## everything that must hold; installs what it needs
	scripts/setup.sh
	$(MAKE) --no-print-directory vet tools
	$(GO) test -timeout 20m $(UNITS)
	$(GO) test -count=1 -timeout 60m ./e2e/...

tools: ## the programs of others that tests run against, and what else is slow to make, once into the user's cache
	$(GO) test -timeout 60m -run '^TestTools$$' ./internal/testtools
	GOARCH=arm64 GOARM64=v8.0 $(GO) build -trimpath -ldflags '-s -w -buildid=' -o /dev/null ./cmd/cimeter
	scripts/debian.sh >/dev/null

vet: ## what is quick to see
	$(GO) vet ./...
	@bad=$$(gofmt -l $$(git ls-files '*.go' 2>/dev/null || find . -name '*.go')); \
	if [ -n "$$bad" ]; then echo "not formatted (gofmt -w): $$bad" >&2; exit 1; fi

lint: vet ## the same and staticcheck
	$(GO) run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

bench: ## benchmarks; those of the agent print ratios
	scripts/setup.sh
	$(GO) test -p 1 -timeout 60m -run '^$$' -bench . -benchmem ./...

load: build ## a fleet's load on a server, on loopback: LOAD="-duration 10m -database postgres://..." for other sizes
	$(GO) run ./bench/load $(LOAD)

fuzz: ## every fuzz target for FUZZTIME each
	scripts/fuzz.sh $${FUZZTIME:-30s}

e2e: ## only the tests on real daemons and kernels
	scripts/setup.sh
	$(GO) test -count=1 -timeout 30m ./e2e/...

golden: ## rewrite what is rendered from the code: docs, dependency list
	$(GO) test ./internal/config ./internal/catalog ./internal/dashboard ./internal/archtest -update

VERSION ?= 0.0.0
ARCH := $(shell $(GO) env GOARCH)
package: build ## deb and rpm of this machine's architecture: dist/; VERSION=1.2.3
	scripts/package.sh $(VERSION) $(ARCH) bin/cimeter dist

image: build ## the container image: dist/cimeter.tar
	scripts/package-image.sh $(VERSION) $(ARCH) bin/cimeter dist/cimeter.tar

install: build ## the agent onto this machine, with user, unit and configuration
	bin/cimeter install

release: ## programs for amd64 and arm64, packages, lists of modules, checksums: dist/
	rm -rf dist
	scripts/release.sh dist

clean:
	rm -rf bin dist
