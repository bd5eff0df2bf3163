#!/bin/bash
# The measurement of topology-aware gathers and scatters (perf/lab/leaves.sh), quiet and with an
# alltoall across the cable, of a few calls: hosts of one leaf are found by the map, every run ends
# well (with a wrong byte it does not), and its table has all cells.
# Options: --hosts 8 --leaves 2 --rate 500mbit --uplink 500mbit --timeout 150
LEAVES_ALGORITHMS="topology topology-direct"
LEAVES_SIZES=64,64K
LEAVES_ITERATIONS=3
LEAVES_REPETITIONS=1
set -- quiet busy
# shellcheck disable=SC1091 # It is there in the lab.
. perf/lab/leaves.sh >/tmp/leaves.out 2>&1 || { cat /tmp/leaves.out; exit 1; }
only_hosts="0 1 2 3 4 5" prun -n 6 /build/perf/allrail-info >/tmp/leaves.info 2>&1
python3 - <<'END' || { cat /tmp/leaves.out /tmp/leaves.info; exit 1; }
import re
table = open("/tmp/leaves.out").read()
rows = re.findall(r"(?m)^\| (gather|scatter) \| (quiet|busy) \| (64|65536) \|(.*)\|$", table)
assert len(rows) == 8, rows
assert all(cells.count("(") == 2 for *_, cells in rows), rows
assert "Leaf switches: 2\n" in open("/tmp/leaves.info").read()
print(len(rows), "rows")
END
