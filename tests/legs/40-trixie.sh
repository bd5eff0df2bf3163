#!/bin/bash
# Debian 13: gcc 14, PMIx 5 and the newer libraries, in the lab's root file system: the tests whose
# outcome another system can change (suite `system`). The others are left to the legs before, and
# with --long most of them run here, too.
# Limit: 2700 s, with --long 12000 s
. tests/legs/common.sh
reason=$(why_no_lab)
if [ -n "$reason" ]; then
  skip "Debian 13" "$reason"
  exit 0
fi
try "root file system" tests/lab/rootfs
build=$(tests/lab/enter --build-dir)
# Its results are read from outside: the build directory is the same on both sides.
# shellcheck disable=SC2016 # The shell inside expands these.
tests/lab/enter bash -c '
  ALLRAIL_CHECK_RESULTS=/build/check-results
  : >$ALLRAIL_CHECK_RESULTS
  . tests/legs/common.sh
  export CCACHE_DIR=/ccache
  try "configure" configure /build -Dtests=true -Dbuildtype=debugoptimized
  suites=(system)
  [ "$ALLRAIL_CHECK_LONG" != yes ] || suites+=(unit conformance property program)
  run_tests /build "${suites[@]}"' || true
sed "s/\tleg: /\t$ALLRAIL_CHECK_LEG: /" "$build/check-results" >>"$ALLRAIL_CHECK_RESULTS"
