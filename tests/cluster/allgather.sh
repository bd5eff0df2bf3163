#!/bin/bash
# Every algorithm gives the right bytes on four hosts with one and with two ranks each, in calls
# with a barrier between them and back to back.
# Options: --per-host 2 --timeout 120
bench=(/build/perf/allrail-bench allgather --sizes 8:1M --factor 32 --iterations 5 --warmup 1)
for ranks in 4 8; do
  placed=(-n "$ranks" --map-by "ppr:$((ranks / 4)):node")
  prun "${placed[@]}" "${bench[@]}" --algorithm all --mode isolated
  prun "${placed[@]}" "${bench[@]}" --algorithm auto --mode streaming
done
