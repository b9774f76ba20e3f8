# The commands of this repository, for people and for CI. Each is safe to
# repeat. How things are built is here and in scripts/; what the tests check is
# not.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# One known place for what is built, and the tools that a login shell may lack.
export CARGO_TARGET_DIR := $(CURDIR)/target
export PATH := $(PATH):$(or $(CARGO_HOME),$(HOME)/.cargo)/bin:/usr/local/sbin:/usr/sbin:/sbin

PREFIX ?= /usr/local
DESTDIR ?=
ROUNDS ?= 20
ARGS ?=

PHASE := @scripts/phase
CARGO_RELEASE := cargo build --locked --release

# Tests on real boxes make namespaces and mounts, which needs root. Without it
# the other tests run, and the runner's summary counts these as skipped.
ROOT := $(shell [ "$$(id -u)" = 0 ] && echo yes)
NEXTEST_FILTER := $(if $(ROOT),,-E 'not test(/(^|::)box_/)')

.PHONY: help demo test build boxd web bench crash install check-root

help: ## show this list
	@echo 'Icebox: make TARGET'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(firstword $(MAKEFILE_LIST)) | expand -t 14
	@echo
	@echo 'As root, demo, test, bench and crash install what is missing first (scripts/bootstrap --help).'

demo: ## show a box start, freeze to disk, survive a server restart and thaw
	$(PHASE) 1/5 'what this machine needs' scripts/bootstrap
	$(PHASE) 2/5 'boxd, the daemon in the box (static)' scripts/build-boxd
	$(PHASE) 3/5 'the dashboard' scripts/build-web
	$(PHASE) 4/5 'icebox' $(CARGO_RELEASE) -p icebox-cli
	$(PHASE) 5/5 'demo' ./target/release/icebox demo

test: check-root ## run the whole test suite (ARGS='...' goes to cargo nextest)
	$(PHASE) 1/9 'what this machine needs' scripts/bootstrap --tests
	$(PHASE) 2/9 'format' cargo fmt --all --check
	$(PHASE) 3/9 'boxd, the daemon in the box (static)' scripts/build-boxd
	$(PHASE) 4/9 'the dashboard' scripts/build-web --required
	$(PHASE) 5/9 'clippy' cargo clippy --locked --workspace --all-targets -- -D warnings
	$(PHASE) 6/9 'build' cargo build --locked --workspace --all-targets
	$(PHASE) 7/9 'tidy' ./target/debug/xtask tidy
	$(PHASE) 8/9 'examples in the documentation' cargo test --locked --workspace --doc --quiet
	$(PHASE) 9/9 'tests' cargo nextest run --locked --workspace $(NEXTEST_FILTER) $(ARGS)

check-root:
	$(if $(ROOT),,@echo 'make test: not root, so the tests on real boxes are left out; run it as root for all of them' >&2)

build: ## build the icebox program, its dashboard and boxd (release)
	$(PHASE) 1/3 'boxd, the daemon in the box (static)' scripts/build-boxd
	$(PHASE) 2/3 'the dashboard' scripts/build-web
	$(PHASE) 3/3 'icebox' $(CARGO_RELEASE) -p icebox-cli

boxd: ## build only boxd, into target/boxd/boxd
	@scripts/build-boxd

web: ## build only the dashboard, into web/dist
	@scripts/build-web --required

bench: ## measure against criu, podman and nginx (ARGS='...' goes to the benchmark: --edge, --app)
	$(PHASE) 1/5 'what this machine needs' scripts/bootstrap --bench
	$(PHASE) 2/5 'boxd, the daemon in the box (static)' scripts/build-boxd
	$(PHASE) 3/5 'the dashboard' scripts/build-web
	$(PHASE) 4/5 'icebox and the benchmark' $(CARGO_RELEASE) -p icebox-cli -p xtask
	$(PHASE) 5/5 'bench' ./target/release/xtask bench $(ARGS)

crash: ## kill the server and CRIU at every step, ROUNDS times (20)
	$(PHASE) 1/4 'what this machine needs' scripts/bootstrap
	$(PHASE) 2/4 'boxd, the daemon in the box (static)' scripts/build-boxd
	$(PHASE) 3/4 'icebox and the crash matrix' $(CARGO_RELEASE) -p icebox-cli -p xtask
	$(PHASE) 4/4 'crash' ./target/release/xtask crash --rounds $(ROUNDS) $(ARGS)

install: build ## install to PREFIX (/usr/local): bin/icebox and lib/icebox/boxd
	@install -D -m 755 target/release/icebox '$(DESTDIR)$(PREFIX)/bin/icebox'
	@install -D -m 755 target/boxd/boxd '$(DESTDIR)$(PREFIX)/lib/icebox/boxd'
	@echo "installed $(DESTDIR)$(PREFIX)/bin/icebox and $(DESTDIR)$(PREFIX)/lib/icebox/boxd"
