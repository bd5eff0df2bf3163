#!/bin/bash
# The verbs rail over real libibverbs: the conformance suite for both ways to connect, every kind of
# allgather and some calls of every other collective with every byte checked, ports without an IP
# address, a rail that goes down and comes back in the middle of a run, and a user who may lock
# little memory.
# Options: --timeout 600
. tests/guest/common.sh

# Before Allrail is blamed for anything. One boot does for both.
bash tests/guest/devices.sh

export ALLRAIL_TEST_VERBS=10.9.0.1,10.9.1.1 ALLRAIL_RAILS=verbs
/build/tests/conformance/verbs_rail_test >/tmp/conformance.log ||
  fail "$(tail -n 40 /tmp/conformance.log)"

/build/perf/allrail-info >/tmp/info.log || fail "allrail-info failed"
for rail in 0 1; do
  grep -Eq "^ *rxe$rail:1 +verbs +10\.9\.$rail\.1 .*taken: RoCE" /tmp/info.log ||
    fail "allrail-info does not show rxe$rail as taken: $(cat /tmp/info.log)"
done

grep -A 1 -E '^ *rxe0:1 ' /tmp/info.log |
  grep -Eq 'MTU [0-9]+, not on PCI, NUMA node unknown' ||
  fail "allrail-info does not tell of rxe0's MTU and place: $(cat /tmp/info.log)"
ip link set d1 down
ALLRAIL_RAILS=rxe0 /build/perf/allrail-info >/tmp/info.log ||
  fail "allrail-info failed with one rail"
ip link set d1 up
grep -Eq '^ *rxe1:1 .*not taken: ' /tmp/info.log ||
  fail "allrail-info does not say why rxe1 is not taken: $(cat /tmp/info.log)"

# allgather RANKS NODES ARGS...: exits with an error on a wrong byte.
allgather() {
  local ranks=$1 nodes=$2
  shift 2
  timeout 100 /build/launcher/run/allrail-run -n "$ranks" --nodes "$nodes" \
    /build/perf/allrail-bench allgather "$@" >/tmp/allgather.log 2>&1 ||
    fail "allgather $* of $ranks ranks on $nodes nodes: $(cat /tmp/allgather.log)"
}
allgather 4 2 --sizes 8:512K --factor 16 --iterations 5
# Starting ranks takes longest here, so one job makes several.
algorithms=direct,bruck,smp-recursive-doubling
allgather 3 3 --sizes 8:2M --factor 64 --iterations 3 --algorithm "$algorithms"

# The other collectives and plans, a communicator that is split off, and memory of the user that is
# unmapped between two calls, each with every byte checked.
# probe RANKS NODES MODE ARGS...
probe() {
  local ranks=$1 nodes=$2
  shift 2
  timeout 100 /build/launcher/run/allrail-run -n "$ranks" --nodes "$nodes" \
    /build/tests/multiprocess/collectives/collective-probe "$@" >/tmp/probe.log 2>&1 &&
    grep -q "$1 done" /tmp/probe.log ||
    fail "$* of $ranks ranks on $nodes nodes: $(cat /tmp/probe.log)"
}
# The other kernel is busy with the cost model meanwhile.
if [[ $(uname -r) == 6.1.* ]]; then
  # Into memory that stays registered: one part per rank, and one for the node. The larger sizes go
  # straight there.
  for memory in buffer node; do
    allgather 4 2 --sizes 8:2M --factor 64 --iterations 3 --memory "$memory"
    allgather 3 3 --sizes 8:2M --factor 64 --iterations 3 --memory "$memory"
  done
  probe 3 3 rooted-grid every=17 first=2 sizes=8,70000
  probe 2 2 plans seed=2 steps=25 sizes=0,100,16385,300001
  probe 4 2 splits seed=1 columns=2 calls=8
  probe 2 2 remap bytes=1048576
fi

# What calls take of the system: a small one rings one doorbell, which is a write() of the provider,
# and allocates nothing; of large ones it is told. Half of the calls that are counted are barriers.
# The one lock is the library's, for a completion event that a rank read after it had slept.
for counted in "64 200" "262144 40" "1048576 20"; do
  read -r bytes calls <<<"$counted"
  timeout 100 /build/launcher/run/allrail-run -n 2 --nodes 2 \
    /build/tests/multiprocess/collectives/count-probe quiet bytes="$bytes" calls="$calls" \
    >/tmp/count.log || fail "counting system calls of $bytes bytes: $(cat /tmp/count.log)"
  echo "allgather of $bytes bytes: $(cat /tmp/count.log)"
  [ "$bytes" = 64 ] || continue
  [ "$(grep -Ec 'allocations 0 .* fewest-sends 1[01] ' /tmp/count.log)" = 2 ] ||
    fail "a small call allocates, or sends more than once: $(cat /tmp/count.log)"
  awk '{ reads = 0; for (i = 10; i <= NF; ++i) if ($i ~ /^0:/) reads = substr($i, 3) }
    $5 != "locks" || $6 > reads + 0 { bad = 1 } END { exit bad }' /tmp/count.log ||
    fail "a small call takes locks, and not for completion events: $(cat /tmp/count.log)"
  # Beside the doorbell it waits: by yields, and after a while for an event, which an ioctl arms.
  python3 - <<'END_OF_PYTHON' || fail "a small call asks the system for more: $(cat /tmp/count.log)"
allowed = {
    0: "read", 1: "write", 7: "poll", 16: "ioctl", 24: "sched_yield", 202: "futex",
    203: "sched_setaffinity", 204: "sched_getaffinity", 228: "clock_gettime", 232: "epoll_wait",
    281: "epoll_pwait", 324: "membarrier",
}
for line in open("/tmp/count.log"):
    made = {int(one.split(":")[0]) for one in line.partition(" calls ")[2].split()}
    assert made and made <= set(allowed), line
END_OF_PYTHON
done

# The cost model is fitted to both rails, and chooses as the model of a tuning file. The kernel
# makes no difference to that, and it takes a minute on one emulated processor: once is enough.
if [[ $(uname -r) != 6.1.* ]]; then
  timeout 250 /build/launcher/run/allrail-run -n 2 --nodes 2 \
    /build/perf/allrail-bench fit --json /tmp/model.json >/tmp/fit.log 2>&1 ||
    fail "the cost model was not fitted: $(cat /tmp/fit.log)"
  python3 -c '
import json
model = json.load(open("/tmp/model.json"))
assert len(model["rail_MBps"]) == 2 and min(model["rail_MBps"]) > 0, model
json.dump({"format": 1, "model": model}, open("/tmp/tuning.json", "w"))
' || fail "it has not two rails: $(cat /tmp/model.json)"
  export ALLRAIL_TUNING_FILE=/tmp/tuning.json
  timeout 100 /build/launcher/run/allrail-run -n 3 --nodes 3 \
    /build/perf/allrail-info explain allgather 4K >/tmp/explain.log 2>&1 ||
    fail "explain by a model: $(cat /tmp/explain.log)"
  grep -q 'by the cost model in /tmp/tuning.json' /tmp/explain.log ||
    fail "the model was not asked: $(cat /tmp/explain.log)"
  allgather 3 3 --sizes 8:64K --factor 64 --iterations 3
  unset ALLRAIL_TUNING_FILE
fi

ALLRAIL_CONNECT=direct allgather 4 2 --sizes 8:512K --factor 16 --iterations 5
# One port of two has no address any more: its rail connects without one, the other's as before.
ip address delete 10.9.0.1/24 dev d0
/build/perf/allrail-info >/tmp/info.log || fail "allrail-info failed"
grep -Eq "^ *rxe0:1 .*taken: RoCE.*connects without an IP address" /tmp/info.log ||
  fail "allrail-info does not show rxe0 without an address: $(cat /tmp/info.log)"
allgather 4 2 --sizes 8:512K --factor 16 --iterations 5
rc=0
ALLRAIL_CONNECT=cm timeout 60 /build/launcher/run/allrail-run -n 2 --nodes 2 \
  /build/perf/allrail-bench allgather >/tmp/cm.log 2>&1 || rc=$?
[ "$rc" != 0 ] && [ "$rc" != 124 ] && grep -q 'rxe0:1 has no IP address' /tmp/cm.log ||
  fail "a port without an address and ALLRAIL_CONNECT=cm gave exit code $rc: $(cat /tmp/cm.log)"
ip address add 10.9.0.1/24 dev d0

# Once the ranks have their rails, one loses its address and gets it back, and goes down and comes
# back, for as long as the run takes, and all bytes arrive.
rm -f /tmp/allgather.log
(
  until grep -qs '^# allrail-bench' /tmp/allgather.log; do sleep 0.2; done
  while :; do
    sleep 2
    ip address delete 10.9.0.1/24 dev d0
    sleep 1.5
    ip address add 10.9.0.1/24 dev d0
    sleep 2
    ip link set d0 down
    sleep 1.5
    ip link set d0 up
  done
) &
flaps=$!
ALLRAIL_LOG=summary,warning ALLRAIL_TIMEOUT=30s allgather 2 2 --sizes 256K --iterations 500
kill "$flaps"
ip link set d0 up
ip address add 10.9.0.1/24 dev d0 2>/dev/null || true
# Either the port's event comes first, or what became of a write.
grep -q 'rail rxe0:1 to rank . is down' /tmp/allgather.log ||
  fail "nobody lost rxe0: $(cat /tmp/allgather.log)"

rc=0
ALLRAIL_RAILS=rxe7 timeout 60 /build/launcher/run/allrail-run -n 2 --nodes 2 \
  /build/perf/allrail-bench allgather >/tmp/unknown.log 2>&1 || rc=$?
[ "$rc" != 0 ] && [ "$rc" != 124 ] && grep -q 'rxe7' /tmp/unknown.log ||
  fail "an unknown device gave exit code $rc: $(cat /tmp/unknown.log)"

# as_user KIB COMMAND...: as a normal user, who may lock so much memory; root may lock anything.
as_user() {
  local kib=$1
  shift
  (
    ulimit -l "$kib"
    exec timeout 100 setpriv --reuid=nobody --regid=nogroup --clear-groups env HOME=/tmp \
      /build/launcher/run/allrail-run -n 2 --nodes 2 /build/perf/allrail-bench "$@"
  )
}
# Less than the smallest segment ends the job, and says what there is and what it takes.
rc=0
as_user 64 allgather --sizes 8 --iterations 5 >/tmp/memlock.log 2>&1 || rc=$?
[ "$rc" != 0 ] && [ "$rc" != 124 ] &&
  grep -q 'may lock 65536 bytes of memory, and its 2 RDMA rails need at least 4194304' \
    /tmp/memlock.log && grep -q 'ulimit -l' /tmp/memlock.log ||
  fail "64 KiB of locked memory gave exit code $rc: $(cat /tmp/memlock.log)"
# A little more than that: calls that would register more are copied, with the right bytes.
as_user 8192 allgather --sizes 8:2M --factor 64 --iterations 3 --algorithm direct \
  >/tmp/memlock.log 2>&1 || fail "8 MiB of locked memory: $(cat /tmp/memlock.log)"
[ "$(grep -c 'warning.*(ulimit -l)' /tmp/memlock.log)" = 2 ] ||
  fail "not two warnings that name the limit: $(cat /tmp/memlock.log)"
