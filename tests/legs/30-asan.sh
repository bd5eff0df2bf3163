#!/bin/bash
# Address and undefined-behaviour sanitizers over all tests that live in one process.
# Limit: 2700 s
. tests/legs/common.sh
# gcc's warnings are less exact in sanitized code; the gcc leg has already judged them.
try "configure" configure build-asan -Dtests=true -Dbuildtype=debugoptimized -Doptimization=1 \
  -Dwerror=false -Db_sanitize=address,undefined
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
run_tests build-asan unit conformance property
