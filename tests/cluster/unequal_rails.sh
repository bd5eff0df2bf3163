#!/bin/bash
# Both rails carry: on 500 + 250 Mbit/s an allgather of 1 MiB per rank must beat what the fast rail
# could do alone (50.3 ms for 3 MiB per host).
# Options: --rate 500mbit --rate1 250mbit --timeout 60
prun -n 4 /build/perf/allrail-bench allgather --sizes 1M:1M --iterations 20 --warmup 3 \
  --json /tmp/result.json
python3 - <<'END'
import json
result = json.load(open("/tmp/result.json"))["results"][0]
took_ms = result["time_us"]["p50"] / 1000
assert result["wrong_bytes"] == 0, result
assert took_ms < 50.3, f"{took_ms:.1f} ms: no better than the fast rail alone"
END
