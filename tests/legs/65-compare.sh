#!/bin/bash
# With --long only: perf/compare, whole but short. Every library gives times of every collective on
# one node and of allgathers over rails, whatever they are.
# Limit: 60 s, with --long 1500 s
. tests/legs/common.sh
[ "$ALLRAIL_CHECK_LONG" = yes ] || exit 0
reason=$(why_no_lab)
if [ -n "$reason" ]; then
  skip "compare" "$reason"
  exit 0
fi
output=$(mktemp -d)
trap 'rm -rf "$output"' EXIT

compare() { timeout 700 perf/compare --repetitions 1 --output "$output/$1" "${@:2}"; }

# FOLDER LIBRARIES SETTINGS SIZES: every combination was measured, after a barrier and back to back.
measured() {
  python3 -B - "$output/$1/compare.json" "${@:2}" <<'PYTHON'
import itertools
import json
import sys

with open(sys.argv[1], encoding="utf-8") as text:
    document = json.load(text)
wanted = [argument.split(",") for argument in sys.argv[2:]] + [["isolated", "streaming"]]
found = {
    (one["library"], one["setting"], str(one["bytes_per_rank"]), one["mode"])
    for one in document["results"]
    if one["time_us"]["p50"] > 0
}
missing = [one for one in itertools.product(*wanted) if one not in found]
sys.exit(f"not measured: {missing}, failed: {document['failed']}" if missing else 0)
PYTHON
}

libraries=allrail,openmpi-ob1,openmpi-ucx,mpich,bare
settings=node2,shaped-x1
if try "allgathers" \
  compare allgather --only $settings --sizes 8,64K --libraries $libraries; then
  try "every library's allgathers" measured allgather $libraries $settings 8,65536 || true
  for file in compare.md times.svg ratios.svg; do
    try "$file" test -s "$output/allgather/$file" || true
  done
fi
peers=allrail,openmpi-ob1,mpich
for collective in gather scatter broadcast alltoall barrier \
  allgatherv gatherv scatterv alltoallv; do
  size=64
  [ $collective != barrier ] || size=0
  try "$collective" compare $collective --collective $collective --only node2 --sizes 64 \
    --libraries $peers || continue
  try "every library's $collective" measured $collective $peers node2 $size || true
done
