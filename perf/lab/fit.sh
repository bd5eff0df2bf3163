#!/bin/bash
# What the fitted model says of calls beside what they take, on namespace hosts:
#   tests/lab/cluster --hosts 4 --rate 500mbit --rate1 500mbit --burst 256k --timeout 280 \
#     --shell-in-hosts perf/lab/fit.sh [COLLECTIVE ...]
# Fits the model between the first two hosts, then measures every collective by the algorithm that
# Allrail chooses, calls after a barrier, and simulates the same call. Prints a table. Time means
# something only on a machine that does nothing else.
set -euo pipefail
build=${FIT_BUILD:-/build}
sizes=${FIT_SIZES:-64,4K,64K,1M}
iterations=${FIT_ITERATIONS:-50}
collectives=("$@")
[ $# -gt 0 ] || collectives=(allgather gather scatter broadcast alltoall)

only_hosts="0 1" prun -n 2 "$build/perf/allrail-bench" fit --json /tmp/fit.model
for collective in "${collectives[@]}"; do
  prun -n 4 "$build/perf/allrail-bench" "$collective" --sizes "$sizes" \
    --iterations "$iterations" --json "/tmp/fit.$collective"
done
python3 - "$build/perf/allrail-info" "${collectives[@]}" <<'END'
import json
import subprocess
import sys

info, *collectives = sys.argv[1:]
print("\n| collective | bytes | algorithm | measured, us | model, us | model / measured |")
print("|---|---:|---|---:|---:|---:|")
for collective in collectives:
    for row in json.load(open("/tmp/fit." + collective))["results"]:
        words = [info, "simulate", collective, str(row["bytes_per_rank"]), "--nodes", "4"]
        words += ["--rails", "2", "--model", "/tmp/fit.model", "--json"]
        # Where the choice changed between calls, the one that it changed to.
        algorithm = row["algorithm"].split(">")[-1]
        words += ["--algorithm", algorithm, "--ports", str(row["ports"])]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)}: {done.stderr}")
        (result,) = json.loads(done.stdout)["results"]
        took, said = row["time_us"]["p50_slowest_rank"], result["time_us"]
        print(f"| {collective} | {row['bytes_per_rank']} | `{row['algorithm']}` |", end=" ")
        print(f"{took:.4g} | {said:.4g} | {said / took:.2f} |")
END
