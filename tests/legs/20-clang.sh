#!/bin/bash
# Everything compiles without a warning with clang, and the unit tests pass.
# Limit: 2400 s
. tests/legs/common.sh
export CXX="ccache clang++"
try "configure" configure build-clang -Dtests=true -Dbuildtype=debugoptimized
try "build everything" ninja -C build-clang
run_tests build-clang unit
