#!/bin/bash
# Every byte of gather, scatter, broadcast and alltoall, in all their forms, on four hosts with one
# and with two ranks each; then a random sequence of them.
# Options: --per-host 2 --timeout 120
probe=/build/tests/multiprocess/collectives/collective-probe

# check MODE RANKS ARGS...: every rank ends well, and the first one says that all calls were made.
check() {
  local mode=$1 ranks=$2
  shift 2
  prun -n "$ranks" --map-by "ppr:$((ranks / 4)):node" timeout 60 "$probe" "$mode" "$@" \
    >/tmp/output 2>&1 && grep "^$mode done" /tmp/output && return
  echo "rooted: $mode $* of $ranks ranks"
  cat /tmp/output
  exit 1
}

check rooted-grid 4 every=7 first=3
check rooted-grid 8 every=17 first=5
check rooted-sequence 8 seed=7 calls=60
