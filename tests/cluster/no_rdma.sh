#!/bin/bash
# Hosts without RDMA: a job goes over TCP and says so in one line, however many ranks it has;
# ALLRAIL_RAILS=tcp says nothing, and ALLRAIL_RAILS=verbs is an error that says what to change.
# Options: --per-host 2 --timeout 100
stop() {
  echo "no_rdma: $*"
  cat /tmp/output
  exit 1
}

run() {
  ALLRAIL_RAILS=$1 prun -n 8 --map-by ppr:2:node timeout 40 /build/perf/allrail-bench allgather \
    --sizes 8:8 --iterations 5 >/tmp/output 2>&1
}
said() { grep -c 'no RDMA port that can be a rail.*rails over TCP' /tmp/output; }

run auto || stop "a job without RDMA failed"
[ "$(said)" = 1 ] || stop "$(said) lines say that the job goes over TCP, not one"
run tcp || stop "a job with ALLRAIL_RAILS=tcp failed"
[ "$(said)" = 0 ] || stop "what is meant was told"
! run verbs || stop "ALLRAIL_RAILS=verbs without RDMA is no error"
grep -q 'ALLRAIL_RAILS' /tmp/output || stop "the error does not name the setting"
