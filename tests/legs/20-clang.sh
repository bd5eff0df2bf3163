#!/bin/bash
# Everything compiles without a warning with clang too, and all tests that live in one process pass
# under the address and undefined-behaviour sanitizers. One build for both, and for the fuzzers.
# Limit: 3000 s
. tests/legs/common.sh
try "configure" configure_clang || exit 0
try "build everything" ninja -C build-clang
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
# They wait more than most, for clocks and for one another.
tests_per_processor=3
run_tests build-clang unit conformance property
