#!/bin/bash
# Both rails carry what they can: on 500 + 250 Mbit/s two thirds of the bytes of an allgather of
# 1 MiB per rank take the fast rail, on every host and both ways.
# Options: --rate 500mbit --rate1 250mbit --timeout 60
ALLRAIL_LOG=summary prun -n 4 /build/perf/allrail-bench allgather --sizes 1M:1M --iterations 30 \
  --warmup 3 --json /tmp/result.json >/tmp/output 2>&1 || { cat /tmp/output; exit 1; }
python3 - <<'END' || { cat /tmp/output; exit 1; }
import json
import re
document = json.load(open("/tmp/result.json"))
assert document["results"][0]["wrong_bytes"] == 0, document
counters = {rail["name"]: rail for rail in document["rail_counters_of_rank_0"]}
shares = {}
for rank, line in re.findall(r"allrail rank (\d) summary:(.*)", open("/tmp/output").read()):
    found = re.findall(r"(eth\d) sent (\d+) bytes in \d+ chunks, received (\d+) in", line)
    sent, received = ({name: int(counts[i]) for name, *counts in found} for i in (0, 1))
    if rank == "0":
        assert {name: rail["bytes_sent"] for name, rail in counters.items()} == sent, counters
    shares[rank] = [one["eth0"] / (one["eth0"] + one["eth1"]) for one in (sent, received)]
print("shares of the fast rail, sent and received by each rank:", shares)
assert len(shares) == 4, shares
# Before anything is measured a half each.
assert all(0.56 < share < 0.76 for both in shares.values() for share in both), shares
END
