#!/bin/bash
# Two guests: ssh and prterun reach the second one, each rail carries RDMA writes to it, and ports
# of different MTUs have links with the smaller one.
# Options: --guests 2 --timeout 400
# Kernels: 6.1
# On the other one campaign.sh runs this first.
. tests/guest/common.sh

hosts=$(prterun --host guest0,guest1 --prtemca prte_if_include 10.9.9.0/24 -n 2 \
  sh -c 'hostname; sleep 0.3' | sort | xargs)
[ "$hosts" = "guest0 guest1" ] || fail "prterun started on '$hosts', not on guest0 and guest1"
server=(ssh guest1)
for rail in 0 1; do
  run_pair "10.9.$rail.2" ib_write_lat -d "rxe$rail" -x 1 -n 10 -F
done

# allgather CONNECT: one rank on each guest. librdmacm alone would give both ends the MTU of the end
# that connects, which is that of rank 0, and the other one would lose what is larger than its own.
allgather() {
  timeout 120 prterun --host guest0,guest1 --bind-to none --prtemca prte_if_include 10.9.9.0/24 \
    -x ALLRAIL_RAILS=verbs -x "ALLRAIL_CONNECT=$1" -x ALLRAIL_LOG=summary,warning \
    -x HWLOC_PLUGINS_BLACKLIST -n 2 \
    /build/perf/allrail-bench allgather --sizes 8:256K --factor 32 --iterations 5 \
    >/tmp/allgather.log 2>&1
}
ssh guest1 ip link set eth1 mtu 1500
for _ in 1 2; do
  allgather auto || fail "allgather with MTUs of 4500 and 1500: $(cat /tmp/allgather.log)"
  ! grep 'is down' /tmp/allgather.log || fail "a link was lost: $(cat /tmp/allgather.log)"
  ! allgather cm || fail "librdmacm settled the MTU: $(cat /tmp/allgather.log)"
  grep -q 'MTU of .*rxe1\|rxe1.*MTU of' /tmp/allgather.log ||
    fail "nothing is said of the MTU: $(cat /tmp/allgather.log)"
  # The other way round.
  ssh guest1 ip link set eth1 mtu 4500
  ip link set eth1 mtu 1500
done
ip link set eth1 mtu 4500
