#!/bin/bash
# Open MPI's mpirun is a PMIx launcher too: Allrail's programs run under it as they are.
# Limit: 120 s
. tests/legs/common.sh
# The gcc leg's, which may not have run.
[ -e build-check/build.ninja ] || try "configure" configure_gcc || exit 0
try "build" ninja -C build-check --quiet perf/allrail-bench || exit 0
export ALLRAIL_RAILS=127.0.0.1,127.0.0.2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
allgather() {
  timeout 50 mpirun --oversubscribe --bind-to none -n 8 -x ALLRAIL_RAILS "$@" \
    build-check/perf/allrail-bench allgather --sizes 8:64K --factor 8 --iterations 5 --warmup 1
}
try "8 ranks on one node under mpirun" allgather || true
export ALLRAIL_NODES=4
try "8 ranks on four virtual nodes under mpirun" allgather -x ALLRAIL_NODES || true
