# Short names for the commands of this repository; the work is done by CMake and the scripts in tools/ and bench/.
.PHONY: help setup configure build quickstart test test-long bench check format clean

# Threads of the engine inside one test; ctest runs as many test programs at a time as there are cores.
TEST_THREADS ?= 1
CORES := $(shell nproc)
# A compiler job takes up to 1.5 GB: no more of them at a time than fit into memory.
JOBS := $(shell awk -v cores=$$(nproc) '/MemAvailable/ { fit = int($$2 / 1.5e6); \
  print fit < 1 ? 1 : fit < cores ? fit : cores }' /proc/meminfo)

help:
	@echo "make setup       install what is missing: packages, PyTorch, tokenizer (seconds when nothing is)"
	@echo "make build       build/asterism"
	@echo "make quickstart  fine-tune a tiny model on the bundled conversations and show what it learned"
	@echo "make test        tools/check, all C++ tests, comparison with Hugging Face transformers"
	@echo "make test-long   all tests, with long campaigns, under the address and undefined-behaviour sanitizers;"
	@echo "                 those whose ranks are threads under the thread sanitizer"
	@echo "make bench       time and memory of training steps, operators, data and ranks; bench/results"
	@echo "make check       the rules of CONTRIBUTING.md that a program can check"
	@echo "make format      clang-format on all C++ files"
	@echo "make clean       remove build/ (keeps .venv)"

setup:
	@tools/setup

configure: setup
	@CXX="$$(cat build/compiler)" cmake --preset release >/dev/null

build: configure
	@ninja -C build -j $(JOBS) asterism

quickstart: build
	@tools/quickstart

test: configure
	@tools/check
	@ninja -C build -j $(JOBS)
	@OMP_NUM_THREADS=$(TEST_THREADS) ctest --test-dir build --output-on-failure --parallel $(CORES)
	@tools/cross-check

test-long: setup
	@tools/check
	@CXX="$$(cat build/compiler)" cmake --preset asan >/dev/null
	@ninja -C build/asan -j $(JOBS)
	@ASTERISM_LONG=1 tools/with-sanitizers ctest --test-dir build/asan --output-on-failure
	@CXX="$$(cat build/compiler)" cmake --preset tsan >/dev/null
	@ninja -C build/tsan -j $(JOBS) parallel_test dist_test
	@tools/with-sanitizers ctest --test-dir build/tsan --output-on-failure --tests-regex '^(parallel|dist)$$'

bench: configure
	@ninja -C build -j $(JOBS) asterism bench_data bench_load bench_train_step bench_ranks_step bench_operators
	@bench/run
	@bench/ranks

check:
	@tools/check

format:
	@tools/format

clean:
	rm -rf build
