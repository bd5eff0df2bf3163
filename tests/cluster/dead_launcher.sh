#!/bin/bash
# prterun is killed with SIGKILL while eight ranks on four hosts make calls. Its daemons kill
# theirs, and nobody kills those of the first host: they see that the others are gone, say so and
# end. No rank is left, and none waits.
# Options: --per-host 2 --timeout 100
stop() {
  echo "dead_launcher: $*"
  cat /tmp/output /tmp/said.*
  exit 1
}

all_call() { [ "$(cat /tmp/said.* 2>/dev/null | grep -c ' ready, pid ')" = 8 ]; }
none_is_left() { ! pgrep -f collective-probe >/dev/null; }

# await WHAT COMMAND: only a hang takes so long.
await() {
  local until=$((SECONDS + 40))
  until "$2"; do
    ((SECONDS < until)) || stop "waited in vain until $1"
    sleep 0.2
  done
}

rm -f /tmp/said.*
# shellcheck disable=SC2016 # The shell there expands it.
prun -n 8 sh -c 'exec "$@" >/tmp/said.$PMIX_RANK 2>&1' sh \
  /build/tests/multiprocess/collectives/collective-probe loop bytes=20000 seconds=100 \
  >/tmp/output 2>&1 &
await "all ranks make calls" all_call
sleep 0.5
kill -9 "$(pgrep -x prterun)"
await "no rank is left" none_is_left
for rank in 0 1; do
  grep -Eq "^rank $rank error: peer-lost peer [2-7] " "/tmp/said.$rank" ||
    stop "rank $rank does not say whom it has lost"
done
! grep -q ' done, calls' /tmp/said.* || stop "a rank has ended its calls"
