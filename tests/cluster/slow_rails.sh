#!/bin/bash
# Rails that are slower than the processors are found out, by what a stream of small broadcasts
# holds as by longer chunks, and all ranks choose by it at the same call, with a plan or without.
# Options: --rate 20mbit --burst 32k --timeout 60
prun -n 4 /build/perf/allrail-bench broadcast --sizes 2K:2K --mode streaming --iterations 600 \
  --json /tmp/result.json >/tmp/output 2>&1 || { cat /tmp/output; exit 1; }
prun -n 4 /build/tests/multiprocess/collectives/collective-probe pace bytes=20000 calls=150 \
  >/tmp/pace 2>&1 && grep -q 'pace done, in the end by smp-chain, alltoalls copied' /tmp/pace ||
  { cat /tmp/pace; exit 1; }
python3 - <<'END' || { cat /tmp/output; exit 1; }
import json
result = json.load(open("/tmp/result.json"))["results"][0]
print("broadcasts by", result["algorithm"])
assert result["wrong_bytes"] == 0, result
assert result["algorithm"].split(">")[-1] == "smp-chain", result
END
