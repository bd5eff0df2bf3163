#!/bin/bash
# Virtual machines with soft-RoCE devices, on two kernels: every test in tests/guest, and that the
# guest lab itself tells a failed program, a leftover, a failed kernel and a hang apart. A test may
# name its kernels (`# Kernels: 6.12`), and options that --long adds to its own (`# Long: OPTIONS`).
# Limit: 9000 s
. tests/legs/common.sh
reason=$(why_no_lab)
if [ -z "$reason" ] && ! command -v qemu-system-x86_64 >/dev/null; then
  reason="qemu-system-x86_64 is missing"
fi
if [ -n "$reason" ]; then
  skip "guest" "$reason"
  exit 0
fi

try "Debian 13 build" build_in_lab || exit 0

# expect CODE PATTERN ARGS...: tests/lab/guest ends with the code and says every line of PATTERN.
expect() {
  local code=$1 patterns=$2 rc=0 output pattern
  shift 2
  output=$(tests/lab/guest --keep-log /dev/null "$@" 2>&1) || rc=$?
  echo "$output"
  while read -r pattern; do
    grep -Eq -- "$pattern" <<<"$output" || { echo "nothing matches '$pattern'"; return 1; }
  done <<<"$patterns"
  [ "$rc" = "$code" ] || { echo "the exit code is $rc, not $code"; return 1; }
}

[ "$ALLRAIL_CHECK_LONG" != yes ] || export ALLRAIL_TEST_LONG=1
for kernel in 6.1 6.12; do
  try "kernel $kernel" tests/lab/kernel "$kernel" || continue
  for script in tests/guest/*.sh; do
    read -r -a options < <(sed -n 's/^# Options: //p' "$script") || true
    # A file without this line is sourced by the others.
    [ ${#options[@]} -gt 0 ] || continue
    kernels=$(sed -n 's/^# Kernels: //p' "$script")
    [[ " ${kernels:-$kernel} " == *" $kernel "* ]] || continue
    if [ "$ALLRAIL_CHECK_LONG" = yes ]; then
      read -r -a longer < <(sed -n 's/^# Long: //p' "$script") || true
      options+=("${longer[@]}")
    fi
    try "$(basename "$script" .sh) on $kernel" \
      tests/lab/guest --kernel "$kernel" "${options[@]}" -- bash "$script" || true
  done
done

# These wait more than they work, so they do it at once.
# shellcheck disable=SC2016 # The shell in the guest expands these.
{
  try "the guest lab passes words and the exit code on" expect 7 '^two  words$' \
    -- bash -c 'echo "$1"; exit 7' sh "two  words" &
  try "the guest lab names leftovers" expect 97 'in guest 0: rdma object: .*rxe0.*type RC
in guest 0: shared memory: /dev/shm/left
in guest 0: process: [0-9]+ ibv_rc_pingpong' \
    -- bash -c 'touch /dev/shm/left; ibv_rc_pingpong -d rxe0 -g 1 & sleep 3' &
  try "the guest lab knows a failed kernel" expect 98 'guest 0, .* failed.*Kernel panic' \
    -- bash -c 'echo c >/proc/sysrq-trigger' &
  try "the guest lab boots again" expect 98 'so the guests are booted again .3 of 3.
Kernel panic' --words rdinit=/none -- true &
  try "the guest lab knows a stuck cable" expect 98 'cable eth2 .* stuck' --timeout 100 -- bash -c '
    said="NETDEV WATCHDOG: CPU: 0: transmit queue 0 timed out 30011 ms"
    echo "<3>virtio_net virtio8 eth2: $said" >/dev/kmsg
    sleep 1000' &
  try "the guest lab ends a hang" expect 124 'stopped after 40 s' --timeout 40 -- sleep 1000 &
  wait
}
