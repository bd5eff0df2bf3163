#!/bin/bash
# The model that is fitted on these hosts, held against calls (perf/lab/fit.sh), a few of each
# collective: every cell is there, and what the model says is a time.
# Options: --hosts 4 --rate 500mbit --rate1 500mbit --burst 256k --timeout 150
FIT_SIZES=64,64K
FIT_ITERATIONS=3
set --
# shellcheck disable=SC1091 # It is there in the lab.
. perf/lab/fit.sh >/tmp/fit.out 2>&1 || { cat /tmp/fit.out; exit 1; }
python3 - <<'END' || { cat /tmp/fit.out; exit 1; }
import re
table = open("/tmp/fit.out").read()
row = r"(?m)^\| (\w+) \| (64|65536) \| `[\w-]+` \| ([\d.e+]+) \| ([\d.e+]+) \| [\d.]+ \|$"
rows = re.findall(row, table)
assert len(rows) == 10, rows
assert all(float(took) > 0 and float(said) > 0 for *_, took, said in rows), rows
print(len(rows), "rows")
END
