#!/bin/bash
# Both RDMA devices of a guest have an active port, and the programs of rdma-core and of perftest
# get their bytes through each, with and without the connection manager.
# verbs.sh runs this first.
. tests/guest/common.sh

active=$(ibv_devinfo | grep -c PORT_ACTIVE || true)
[ "$active" = 2 ] || fail "ibv_devinfo shows $active active ports, not 2"
for rail in 0 1; do
  device=(-d "rxe$rail")
  run_pair "10.9.$rail.1" ibv_rc_pingpong "${device[@]}" -g 1 -n 10
  run_pair "10.9.$rail.1" ib_write_lat "${device[@]}" -x 1 -n 10 -F
  rping -s -a "10.9.$rail.1" -C 10 >/dev/null &
  # No list of sockets shows its listener, so the client tries until it is there.
  until rping -c -a "10.9.$rail.1" -C 10 >/dev/null; do
    kill -0 $! || fail "rping's server on rxe$rail ended before a client came"
    sleep 0.2
  done
  wait $! || fail "rping's server on rxe$rail failed"
done
