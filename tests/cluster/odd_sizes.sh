#!/bin/bash
# Three hosts, and hosts with different numbers of ranks: nothing is a power of two.
# Options: --hosts 3 --per-host 3 --timeout 120
bench=(/build/perf/allrail-bench allgather --sizes 1:100K --factor 7 --iterations 5 --warmup 1)
prun -n 9 "${bench[@]}" --algorithm all
# Slots are filled host by host: 3, 3 and 1 ranks.
prun -n 7 "${bench[@]}" --algorithm all
