#!/bin/bash
# A host that falls silent as a whole, as one without power does: nothing that is sent to it arrives
# and nobody says that it is gone. Every other rank gets an error that names its rank, once the
# kernels have had no answer for 20 s, and the next call repeats it. Nothing hangs, and once the
# host answers again the launcher's job ends. What its own rank says is not looked at.
# Options: --timeout 200
stop() {
  echo "dead_host: $*"
  cat /tmp/output
  exit 1
}

# await SECONDS WHAT COMMAND...: only a hang takes so long.
await() {
  local until=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    ((SECONDS < until)) || stop "waited in vain until $what"
    kill -0 "$run" 2>/dev/null || stop "the job ended before $what"
    sleep 0.2
  done
}

all_call() { [ "$(grep -c ' ready, pid ' /tmp/output)" = 4 ]; }
# What the silent host's rank says comes by the launcher's daemon there: later, if at all.
three_errors() { [ "$(grep -c '^rank [012] again: ' /tmp/output)" = 3 ]; }

: >/tmp/output
prterun_options="--runtime-options notifyerrors,recoverable" prun -n 4 timeout 120 \
  /build/tests/multiprocess/collectives/collective-probe loop bytes=20000 seconds=100 \
  >/tmp/output 2>&1 &
run=$!
await 60 "all ranks make calls" all_call
sleep 0.5
for rail in 0 1; do blackhole_rail n3 "eth$rail"; done
await 60 "ranks 0 to 2 know that rank 3 is lost" three_errors
for rail in 0 1; do restore_rail n3 "eth$rail"; done
rc=0
wait "$run" || rc=$?
[ "$rc" != 0 ] && [ "$rc" != 124 ] || stop "exit code $rc"
python3 - <<'END_OF_PYTHON' || stop "the errors are wrong"
import re
text = open("/tmp/output").read()
errors = dict(re.findall(r"(?m)^rank (\d) error: (.*)$", text))
again = dict(re.findall(r"(?m)^rank (\d) again: (.*)$", text))
for rank in "012":
    assert re.match(r"peer-lost peer 3 at ", errors[rank]), errors
    assert re.match(r"aborted .* rank 3, ", again[rank]), again
assert " done, calls" not in text, text
END_OF_PYTHON
