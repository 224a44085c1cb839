# Everything that a person or a machine does with Highwater. Each goal sets up what it needs, says so, and is quick the second time.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test bench check oracle memory setup env

# A RocksDB that was built before shortens the first build; where there is none, RocksDB is compiled from source.
export HIGHWATER_ROCKSDB_CACHE ?= $(abspath ../shared/prebuilt)

SETUP := tests/setup.sh
# Sets the variables that a build wants, then goes on with the rest of the line.
WITH_ENV := settings=$$($(SETUP) env) && eval "$$settings" &&
# The tests kill the real binary at named points, which is a feature. It is on for every goal but bench, and the demo names a test among
# its targets: so all goals resolve the same features, and none builds the dependencies a second time.
FEATURES := --features highwater/failpoints
SEEDS ?= 200
BENCH ?= bench

help: ## List the goals.
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/make \1\t\2/p' $(MAKEFILE_LIST)

demo: ## Build Highwater and watch it work for half a minute; needs no broker.
	@$(SETUP) build
	@$(WITH_ENV) cargo build --workspace $(FEATURES) --bin highwater --test tidy && "$$CARGO_TARGET_DIR/debug/highwater" demo

test: ## Run every test, with a real Kafka broker where one is needed.
	@$(SETUP) test
	@$(WITH_ENV) cargo test --workspace $(FEATURES)

check: ## Formatting, lints, documentation and the house rules.
	@$(SETUP) build
	@$(WITH_ENV) cargo fmt --all --check && \
	cargo clippy --workspace --all-targets $(FEATURES) -- -D warnings && \
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --lib --examples $(FEATURES) && \
	cargo test --workspace $(FEATURES) --test tidy

oracle: ## Compare views with the batch answer for SEEDS=n random histories.
	@$(SETUP) build
	@$(WITH_ENV) HIGHWATER_ORACLE_SEEDS=$(SEEDS) cargo test --workspace $(FEATURES) --test suite oracle -- --nocapture

memory: ## Count 20 million groups with a memory limit of 256 MB (release build; some minutes).
	@$(SETUP) build
	@$(WITH_ENV) cargo test --release --workspace $(FEATURES) --test suite twenty_million -- --ignored --nocapture

bench: ## Print the table of CPU seconds per million events (release build, real broker).
	@$(SETUP) test
	@$(WITH_ENV) cargo bench --workspace --bench $(BENCH)

setup: ## Install what building and testing need, and nothing else.
	@$(SETUP) test

env: ## Print the exports for plain cargo: eval "$(make -s env)".
	@$(SETUP) env
