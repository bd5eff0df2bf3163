#!/bin/bash
# The lab itself: hosts, rails, their rates, cutting them, exit codes. Uses no program of Allrail.
# Options: --per-host 2 --timeout 60
listener='import socket, sys
server = socket.create_server((sys.argv[1], 7000))
while True:
    peer, _ = server.accept()
    count = 0
    while data := peer.recv(1 << 20):
        count += len(data)
    peer.close()'
sender='import socket, sys, time
start = time.monotonic()
peer = socket.create_connection((sys.argv[1], 7000), timeout=2)
total = int(sys.argv[2])
peer.sendall(bytes(total))
peer.shutdown(socket.SHUT_WR)
peer.recv(1)
print(int(total * 8 / (time.monotonic() - start) / 1e6))'

stop() {
  echo "lab: $*"
  exit 1
}

# Megabits per second from n0 to n1 over one rail; fails when nothing arrives.
rate() { in_host n0 timeout 10 python3 -c "$sender" "10.77.$1.11" "$2"; }

for rail in 0 1; do
  in_host n1 python3 -c "$listener" "10.77.$rail.11" &
done
sleep 1

# Ranks live a moment: see the top of tests/lab/cluster.
[ "$(prun -n 8 sh -c 'hostname; sleep 0.3' | sort | uniq -c | xargs)" = "2 n0 2 n1 2 n2 2 n3" ] ||
  stop "8 ranks are not two on each of four hosts"
rc=0
# shellcheck disable=SC2016
prun -n 8 sh -c 'sleep 0.3; exit $((PMIX_RANK == 5 ? 3 : 0))' 2>/dev/null || rc=$?
[ "$rc" = 3 ] || stop "exit code 3 of one rank became $rc"

shape_rail n1 eth0 200mbit
measured=$(rate 0 20000000)
((measured > 150 && measured < 210)) || stop "a rail of 200 Mbit/s carried $measured Mbit/s"
measured=$(rate 1 20000000)
((measured > 400)) || stop "eth1 is not shaped and carried only $measured Mbit/s"

for break_rail in cut_rail blackhole_rail; do
  $break_rail n1 eth1
  ! rate 1 1000 2>/dev/null || stop "data passed after $break_rail"
  rate 0 1000 >/dev/null || stop "$break_rail of eth1 took eth0 with it"
  restore_rail n1 eth1
  rate 1 1000 >/dev/null || stop "no data passes after $break_rail and restore_rail"
done
