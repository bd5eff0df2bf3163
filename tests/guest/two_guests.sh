#!/bin/bash
# Two guests: ssh and prterun reach the second one, and each rail carries RDMA writes to it.
# Options: --guests 2 --timeout 240
. tests/guest/common.sh

hosts=$(prterun --host guest0,guest1 --prtemca prte_if_include 10.9.9.0/24 -n 2 \
  sh -c 'hostname; sleep 0.3' | sort | xargs)
[ "$hosts" = "guest0 guest1" ] || fail "prterun started on '$hosts', not on guest0 and guest1"
server=(ssh guest1)
for rail in 0 1; do
  run_pair "10.9.$rail.2" ib_write_lat -d "rxe$rail" -x 1 -n 10 -F
done
