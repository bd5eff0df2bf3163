#!/bin/bash
# Topology-aware gathers and scatters against others on eight namespace hosts behind two leaf
# bridges that one shaped cable per rail joins, quiet and with an alltoall across it (the two
# figures of Kandalla 2010):
#   tests/lab/cluster --hosts 8 --leaves 2 --rate 500mbit --uplink 500mbit --timeout 600 \
#     --shell-in-hosts perf/lab/leaves.sh [quiet|busy ...]
# Hosts hang on the leaves by turns. n0 to n5 measure; n6 and n7, one on either leaf, make the
# background. Prints what allrail-bench prints, under one line for each run, and at the end a table
# of the slowest rank's median call. Time means something only on a machine that does nothing else.
set -euo pipefail
bench=${LEAVES_BENCH:-/build/perf/allrail-bench}
read -r -a algorithms <<<"${LEAVES_ALGORITHMS:-smp-binomial topology topology-direct smp-direct}"
sizes=${LEAVES_SIZES:-64:1M}
iterations=${LEAVES_ITERATIONS:-30}
repetitions=${LEAVES_REPETITIONS:-3} # in turn
rows=/tmp/leaves.rows
: >"$rows"

python3 - >/tmp/leaves.json <<'END'
import json
leaves = [{"name": "leaf%d" % leaf, "hosts": ["n%d" % host for host in range(leaf, 8, 2)]}
          for leaf in range(2)]
print(json.dumps({"switches": leaves}))
END
export ALLRAIL_SWITCH_MAP=/tmp/leaves.json

# Bytes that have gone over the first rail's cable.
crossed() { cat /sys/class/net/u0l1/statistics/tx_bytes; }

background=""
start_background() {
  local before limit=$((SECONDS + 30))
  before=$(crossed)
  set -m # a process group of its own, to be ended as one
  only_hosts="6 7" prun -n 2 "$bench" alltoall --sizes 1M:1M --iterations 1000000 \
    >/tmp/background.log 2>&1 &
  background=$!
  set +m
  while (($(crossed) - before < 10000000)); do
    if ((SECONDS >= limit)) || ! kill -0 "$background" 2>/dev/null; then
      cat /tmp/background.log
      echo "leaves.sh: the background does not cross the cable" >&2
      exit 1
    fi
    sleep 0.1
  done
}

stop_background() {
  [ -z "$background" ] || kill -- "-$background" 2>/dev/null || true
  [ -z "$background" ] || wait "$background" || true
  background=""
}
trap stop_background EXIT

states=("$@")
[ $# -gt 0 ] || states=(quiet busy)
# One line for each size of the run in /tmp/leaves.run: state, collective, algorithm, bytes, time.
note() {
  python3 - "$@" >>"$rows" <<'END'
import json
import sys
for row in json.load(open("/tmp/leaves.run"))["results"]:
    print(*sys.argv[1:], row["bytes_per_rank"], row["time_us"]["p50_slowest_rank"])
END
}

print_table() {
  python3 - "$rows" "${algorithms[@]}" <<'END'
import statistics
import sys
algorithms = sys.argv[2:]
times = {}
for state, collective, algorithm, size, time in map(str.split, open(sys.argv[1])):
    row = times.setdefault((collective, state, int(size)), {})
    row.setdefault(algorithm, []).append(float(time))
print("\n| collective | background | bytes |", " | ".join(algorithms), "|")
print("|---|---|---:|" + "---:|" * len(algorithms))
for (collective, state, size), row in times.items():
    cells = ("%.0f (%.0f - %.0f)" % (statistics.median(row[name]), min(row[name]), max(row[name]))
             for name in algorithms)
    print("|", collective, "|", state, "|", size, "|", " | ".join(cells), "|")
END
}

for state in "${states[@]}"; do
  [ "$state" = quiet ] || start_background
  for ((repetition = 0; repetition < repetitions; repetition++)); do
    for collective in gather scatter; do
      for algorithm in "${algorithms[@]}"; do
        before=$(crossed)
        echo "== $collective by $algorithm, $state"
        only_hosts="0 1 2 3 4 5" prun -n $((6 * per_host)) "$bench" "$collective" \
          --algorithm "$algorithm" --sizes "$sizes" --iterations "$iterations" \
          --json /tmp/leaves.run
        note "$state" "$collective" "$algorithm"
        [ "$state" = busy ] || echo "up the cable of rail 0: $(($(crossed) - before)) bytes"
      done
    done
  done
  stop_background
done
print_table
