#!/bin/bash
# Instructions and system calls of the small paths, against tests/counts/baseline.json. A build of
# its own, so that its flags are those of the baseline whatever else is built.
# Limit: 600 s
. tests/legs/common.sh
[ "$(uname -m)" = x86_64 ] ||
  { skip "instructions and system calls" "counted on x86-64 only"; exit 0; }
try "configure" configure build-counts -Dtests=true -Dbuildtype=debugoptimized || exit 0
try "build" ninja -C build-counts tests/counts/small-paths || exit 0
compare() {
  local rc=0
  python3 -B tests/counts/counts.py check build-counts/tests/counts/small-paths \
    >build-counts/counts.txt || rc=$?
  cat build-counts/counts.txt
  return $rc
}
# What is better than the baseline is told, too.
if try "instructions and system calls" compare; then cat build-counts/counts.txt; fi
