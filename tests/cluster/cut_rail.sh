#!/bin/bash
# A rail that goes away in the middle of a run: the run ends in bounded time, either with the right
# bytes over the other rail, or with an error that names what was lost. It never hangs.
# Options: --rate 500mbit --timeout 300
stop() {
  echo "cut_rail: $*"
  cat /tmp/output
  exit 1
}

for break_rail in cut_rail blackhole_rail; do
  # About seven seconds of calls with both rails: one goes in the middle. ALLRAIL_TIMEOUT bounds
  # every call; the other limit only catches a hang outside of calls, however busy the machine is.
  ALLRAIL_TIMEOUT=5s prun -n 4 timeout 120 /build/perf/allrail-bench allgather --sizes 1M:1M \
    --iterations 250 --warmup 1 >/tmp/output 2>&1 &
  run=$!
  sleep 3
  kill -0 "$run" || stop "the run ended before the rail was cut"
  $break_rail n1 eth1
  rc=0
  wait "$run" || rc=$?
  restore_rail n1 eth1
  case $rc in 124 | 137) stop "the run hung after $break_rail" ;; esac
  [ "$rc" = 0 ] || grep -q 'rail' /tmp/output || stop "exit code $rc and not a word about a rail"
done
