#!/bin/bash
# The whole test-suite, built by the machine's gcc.
# Limit: 2400 s, with --long 20000 s
. tests/legs/common.sh
try "configure" configure_gcc
run_tests build-check
