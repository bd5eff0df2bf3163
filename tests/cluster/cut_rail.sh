#!/bin/bash
# A rail that goes away in the middle of a run: the run ends well, with the right bytes over the
# other rail, and the counters say what happened. It never hangs.
# Options: --rate 500mbit --timeout 300
stop() {
  echo "cut_rail: $*"
  cat /tmp/output
  exit 1
}

sent_over_eth1() { ip -n n1 -s link show eth1 | awk '/TX:/ { getline; print $1 }'; }

# Calls bring 3 MiB each from n1 to others, and eth1 goes when it has carried a part of them: what
# is left takes the other rail.
cut_after=30000000
for break_rail in cut_rail blackhole_rail; do
  before=$(sent_over_eth1)
  # ALLRAIL_TIMEOUT bounds every call; the other limit only catches a hang outside of calls,
  # however busy the machine is.
  ALLRAIL_LOG=summary ALLRAIL_TIMEOUT=30s prun -n 4 timeout 120 /build/perf/allrail-bench \
    allgather --sizes 1M:1M --iterations 120 --warmup 1 >/tmp/output 2>&1 &
  run=$!
  while [ $(($(sent_over_eth1) - before)) -lt $cut_after ]; do
    kill -0 "$run" || stop "the run ended before the rail was cut"
    sleep 0.1
  done
  $break_rail n1 eth1
  carried=$(($(sent_over_eth1) - before))
  rc=0
  wait "$run" || rc=$?
  restore_rail n1 eth1
  [ "$rc" = 0 ] || stop "exit code $rc after $break_rail"
  python3 - $carried <<'END' || stop "the counters are wrong after $break_rail"
import re
import sys
carried = int(sys.argv[1])
text = open("/tmp/output").read()
rails = {}
for rank, line in re.findall(r"allrail rank (\d) summary:(.*)", text):
    found = re.findall(r"(eth\d) sent (\d+) bytes .*? replays (\d+), fences (\d+),", line)
    rails[int(rank)] = {name: tuple(map(int, counts)) for name, *counts in found}
assert sorted(rails) == [0, 1, 2, 3] and all(len(of) == 2 for of in rails.values()), rails
# Rank 1 is on n1: a link of it over eth1 was taken out, and what was in flight was sent again.
assert rails[1]["eth1"][2] > 0, rails
assert sum(counts[1] for of in rails.values() for counts in of.values()) > 0, rails
sent = {name: rails[1][name][0] for name in ("eth0", "eth1")}
# What was in flight is in both, and what the rail carried has headers.
assert 0 < sent["eth1"] < carried + (16 << 20), (sent, carried)
assert sent["eth0"] > (360 << 20) - carried, (sent, carried)
END
  # The table: nothing of the call is wrong.
  awk '$1 == "1M" { rows++; wrong += $NF != "0" } END { exit rows != 1 || wrong }' /tmp/output ||
    stop "wrong bytes after $break_rail"
done
