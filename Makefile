# Two commands do everything on a fresh Debian 12: `make demo` and `make test`. See docs/DEVELOPING.md.
SHELL := /bin/bash
.DEFAULT_GOAL := help
env := source tools/env.sh &&
fashion_mnist ?= /usr/share/datasets/fashion-mnist

.PHONY: help setup build demo test asan tsan tidy format descriptors bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

setup: ## install what is missing
	@tools/setup.sh

build: setup ## set up and build everything into build/release
	@tools/build.sh release

demo: build ## the whole story on real data
	@$(env) tools/demo.py build/release/bin $(fashion_mnist) --device $$run_device

test: build ## build and run all tests
	@$(env) ctest --test-dir build/release --output-on-failure -j $$jobs

asan: setup ## tests under the address and undefined-behaviour sanitizers, without those labelled slow
	@tools/build.sh asan
	@$(env) ctest --test-dir build/asan --output-on-failure -j $$jobs -LE slow

tsan: setup ## tests of the parts without LibTorch and gRPC under the thread sanitizer
	@tools/build.sh tsan
	@$(env) TSAN_OPTIONS=suppressions=$$PWD/tools/tsan.supp ctest --test-dir build/tsan --output-on-failure -j $$jobs

tidy: ## clang-tidy over the sources that do not include LibTorch
	@tools/setup.sh clang-tidy
	@tools/tidy.sh

format: setup ## format all C++ and CUDA sources
	@git ls-files -z '*.h' '*.cc' '*.cu' '*.cuh' | xargs -0 clang-format -i

descriptors: setup ## renew the committed descriptor set after additive changes to proto/
	@/usr/bin/python3 tools/check_descriptors.py --update

bench: build ## the programs that produce the numbers in docs/
	@$(env) for program in build/release/bin/bench_*; do $$program || exit 1; done

clean: ## remove build/; the set-up stays in the user's cache
	@rm -rf build
