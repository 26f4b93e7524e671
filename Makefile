# All tasks of this project. `make` alone lists them. CI runs .ci/run: go vet,
# release-check, test and test-long. Run `make check` before a pull request.

GO       ?= go
export GO
FUZZTIME ?= 10s
BENCH    ?= .
COUNT    ?= 1
HOURS    ?= 1
DURATION ?= $(HOURS)h
STORES   ?= all
EACH     ?= 20
SLICE    ?= 1/1
BASE     ?=
TIMES    ?= 12
VERSION  ?= v0.1.0
STEPS    ?= .
PACKAGE  ?= ./ratelimit
FILES    ?= .
OLD      ?= last

# Compiling Caddy takes two minutes and TiDB ten, so `make verify` alone builds
# these modules.
SLOW_MODULES := examples/gateway/caddy internal/tidbtest/server

# The program of internal/tidbtest/server. It is built once.
TIDB := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/latchkey/tidb-server

# The nested modules.
MODULES := $(filter-out $(SLOW_MODULES),$(patsubst %/go.mod,%,$(wildcard */*/go.mod */*/*/go.mod)))

# The systems that the modules for users must compile for, besides the one that
# runs their tests.
SYSTEMS ?= windows/amd64 windows/386 windows/arm64 darwin/amd64 darwin/arm64 freebsd/amd64 linux/386 linux/arm64

# Nested modules that users import or install.
USER_MODULES := $(filter sqllock/% ratelimit/% grpcmw/%,$(MODULES))

# The linter of `make check` where golangci-lint is not installed.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2

# The tool of `make vulncheck`.
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0

# The mutation tester of `make mutate`.
MUTATOR := github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## run two instances of examples/quickstart, on DATABASE_URL or a throwaway SQLite file
	@cd examples/quickstart && $(GO) run ./demo

test: ## run all deterministic tests, on real PostgreSQL, MariaDB and SQLite (5 min)
	@$(GO) run -C internal/runtests . test

test-long: ## run the tests that need kills, minutes or luck, and a short campaign (20 min)
	@$(GO) run -C internal/runtests . long

verify: ## run everything on this commit, in steps of 30 min at most, and write docs/evidence.md (hours; goes on where it was stopped)
	@$(GO) run -C internal/runtests . -steps '$(STEPS)' verify

test-loaded: ## run make test TIMES (12) times while two processes keep two processors busy
	@$(GO) run -C internal/runtests . -times $(TIMES) -busy 2 test

test-matrix: deps ## run the tests on PostgreSQL 14 to 18, or on VERSIONS (fetched with npm, 30 min)
	@GO="$(GO)" sh internal/runtests/matrix.sh $(VERSIONS)

test-tidb: deps $(TIDB) ## run the tests of databases with two TiDB servers, too (builds TiDB, 10 min the first time)
	cd internal/databases && LATCHKEY_TEST_TIDB="$(TIDB)" $(GO) test -count 1 -timeout 30m ./...

test-newest: deps ## run the root module's tests with the newest versions of its requirements (make test has the oldest)
	@GO="$(GO)" sh internal/newest.sh ./...

check: deps fmt vet vet-systems lint ## run before a pull request: formatting, vet, lint, tests with the race detector
	@$(GO) run -C internal/runtests . test -- -race

vet-systems: ## vet what users import or install for SYSTEMS (Windows, macOS, FreeBSD, 32 bits), and the examples for Windows and 32 bits
	@set -e; vet() { echo "$$1: cd $$2 && $(GO) vet ./..."; (cd $$2 && CGO_ENABLED=0 GOOS=$${1%/*} GOARCH=$${1#*/} $(GO) vet ./...); }; \
		for s in $(SYSTEMS); do for m in . $(USER_MODULES); do vet $$s $$m; done; done; \
		for s in windows/amd64 linux/386; do for m in $(filter examples/%,$(MODULES)); do vet $$s $$m; done; done

bench: deps-bench ## measure against the alternatives, and print tables (10 min)
	@cd internal/bench && $(GO) run .

bench-quick: deps-bench ## print the main ratios of bench (1 min)
	@cd internal/bench && $(GO) run . -quick

bench-go: deps ## run the Benchmark functions that match BENCH (.), COUNT (1) times, for benchstat
	$(GO) test -run '^$$' -bench '$(BENCH)' -count $(COUNT) -benchmem ./...

chaos: deps ## run the fault campaign: each row of the fault table 20 times, under load (12 min)
	@cd internal/chaos && $(GO) run . -faults 20

chaos-soak: deps ## run the fault campaign on STORES (all) for HOURS (1) in all
	@cd internal/chaos && $(GO) run . -stores $(STORES) -duration $(DURATION)

chaos-tidb: deps $(TIDB) ## run the fault campaign on two TiDB servers for HOURS (1)
	@cd internal/chaos && LATCHKEY_TEST_TIDB="$(TIDB)" $(GO) run . -stores tidb -duration $(DURATION)

chaos-mixed: STORES = postgres,leases,mariadb,sqlite
chaos-mixed: DURATION = 64m
chaos-mixed: deps ## run the fault campaign with the release OLD (the last one) in half of the processes, on STORES (64 min in all)
	@cd internal/chaos && $(GO) run . -old $(OLD) -stores $(STORES) -duration $(DURATION) -least-operations 500000 -least-faults 200

failovers: ## kill and cut off nodes of a cluster under Patroni, each kind of fault EACH (20) times, as root (1 h)
	@cd internal/chaos && $(GO) run ./patroni -each $(EACH)

mutants: deps ## plant each known bug, and check that tests and campaigns catch it (30 min; SLICE=1/8: a part)
	cd internal/chaos && $(GO) test ./mutants -count 1 -timeout 3h -parallel 2 -v -run '^(TestMutants|TestCampaigns)$$' -slice $(SLICE)

mutants-changed: deps ## plant the known bugs in files that have changed since BASE (where the branch began; 6 min at most)
	cd internal/chaos && $(GO) test ./mutants -count 1 -timeout 30m -v -run '^TestLongMutantsChanged$$' -base '$(BASE)'

repro-%: deps ## plant the known bug of this name in internal/chaos/mutants, and show which test catches it
	cd internal/chaos && $(GO) test ./mutants -count 1 -timeout 1h -v -run '^(TestMutants|TestCampaigns)$$/^$*$$' -slice 1/1

mutate: deps ## change each operator of PACKAGE (./ratelimit), one at a time, and check that tests catch it (up to 30 min; FILES='^s': a part)
	@$(GO) run -C internal/mutate . -tool $(MUTATOR) -files '$(FILES)' $(PACKAGE)

browser: deps ## test the page of lockui in Chromium with axe-core; both are found or installed
	@sh internal/browser/deps.sh
	cd internal/browser && LATCHKEY_TEST_BROWSER=required $(GO) test -count 1 ./...

screenshots: deps ## take the pictures of the page in docs/ again, in Chromium
	@sh internal/browser/deps.sh
	cd internal/browser && LATCHKEY_TEST_BROWSER=required $(GO) test -count 1 -run '^TestLongScreenshots$$' -screenshots ../../docs .

api: ## write the exported names of each module into its file api/v0.txt
	@$(GO) run -C internal/release . api

release-check: ## release VERSION (v0.1.0) in a temporary clone, and use it as a stranger would (a minute with a warm build cache, and several without)
	@$(GO) run -C internal/release . check $(VERSION)

release-tags: ## check, write the files of VERSION into bin, and make its tags; CONTRIBUTING.md has the steps of a release
	@$(GO) run -C internal/release . -tag check $(VERSION)

fuzz: deps ## fuzz each Fuzz target for FUZZTIME (10s)
	@set -e; grep -ro --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sort -u | while IFS=: read -r file func; do \
		name=$${func#func }; \
		echo "$(GO) test -run '^$$' -fuzz '^'$$name'$$' -fuzztime $(FUZZTIME) $${file%/*}"; \
		(cd "$${file%/*}" && $(GO) test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) . </dev/null); \
	done

cover: deps ## run the tests of all modules, and print the coverage of each package
	@dir=$$(mktemp -d); status=0; \
	for m in . $(MODULES); do \
		(cd $$m && $(GO) test -count 1 -covermode atomic -coverpkg github.com/latchkey-go/latchkey/... -coverprofile $$(mktemp -p $$dir) ./...) || status=1; \
	done; \
	cat $$dir/* | awk '!/^mode:/ { n[$$1] = $$2; if ($$3 > 0) hit[$$1] = 1 } \
		END { for (b in n) { p = b; sub("/[^/]*$$", "", p); all[p] += n[b]; if (b in hit) covered[p] += n[b] }; \
		for (p in all) printf "%5.1f %%  %s\n", 100 * covered[p] / all[p], p }' | sort -k 3; \
	rm -rf $$dir; exit $$status

vulncheck: ## look for known vulnerabilities in the code that the modules for users call, where the database of govulncheck can be reached
	@set -e; for m in . $(USER_MODULES); do \
		echo "$$m: $(GO) run $(GOVULNCHECK) ./..."; \
		found=$$(cd $$m && $(GO) run $(GOVULNCHECK) ./... 2>&1) && continue; \
		case "$$found" in *"fetching vulnerabilities"*) echo "NOT RUN: vuln.go.dev cannot be reached"; exit 3;; esac; \
		echo "$$found"; exit 1; \
	done

deps: ## find PostgreSQL, PgBouncer, MariaDB, Redis, and drivers of Python and Node, and install what is missing
	@sh internal/pgtest/deps.sh
	@sh internal/pages/languages/deps.sh

clean: ## remove the files of builds and tests, including pgtest's templates and fetched servers
	rm -rf bin
	find . -name '*.test' -type f -exec rm -f {} + -o -name '*.prof' -type f -exec rm -f {} +
	rm -rf "$${XDG_CACHE_HOME:-$$HOME/.cache}/latchkey" "$$HOME/Library/Caches/latchkey" /var/cache/latchkey

# Steps of other targets.

$(TIDB): internal/tidbtest/server/main.go internal/tidbtest/server/go.mod
	@echo "building TiDB"
	@cd internal/tidbtest/server && $(GO) build -o "$@" .

deps-bench:
	@sh internal/pgtest/deps.sh bench

fmt:
	@files=$$(gofmt -l .); [ -z "$$files" ] || { echo "not formatted (gofmt -w them):"; echo "$$files"; exit 1; }

vet:
	$(GO) vet ./...
	@set -e; for m in $(MODULES); do (cd $$m && $(GO) vet ./...); done

lint:
	@set -e; for m in . $(MODULES); do cd "$(CURDIR)/$$m"; \
		if command -v golangci-lint >/dev/null; then \
			echo "$$m: golangci-lint run"; golangci-lint run; \
		else \
			echo "$$m: $(GO) run $(STATICCHECK) ./..."; $(GO) run $(STATICCHECK) ./...; \
		fi; done

.PHONY: help demo test test-long verify test-loaded test-matrix test-tidb test-newest check bench bench-quick bench-go chaos chaos-soak chaos-tidb chaos-mixed failovers mutants mutants-changed mutate browser screenshots release-check release-tags vulncheck fuzz cover deps clean deps-bench fmt vet vet-systems lint api
