#!/bin/bash
# The thread sanitizer over the unit and fabric suites.
# Limit: 1500 s
. tests/legs/common.sh
# gcc's warnings are less exact in sanitized code; the gcc leg has already judged them.
try "configure" configure build-tsan -Dtests=true -Dbuildtype=debugoptimized -Doptimization=1 \
  -Dwerror=false -Db_sanitize=thread
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1
# Rails have no threads, and neither have the tests that only ask whether one keeps the contract.
# They wait more than most, for clocks and for one another.
tests_per_processor=3
run_tests build-tsan unit fabric
