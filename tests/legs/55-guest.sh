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

# words_of NAME SCRIPT: what its line `# NAME: ` says.
words_of() { sed -n "s/^# $1: //p" "$2"; }

# run_scripts KERNEL GUESTS OPTIONS...: the tests for so many guests, on the kernel.
run_scripts() {
  local kernel=$1 guests=$2 script options longer kernels
  shift 2
  for script in tests/guest/*.sh; do
    read -r -a options < <(words_of Options "$script") || true
    # A file without this line is sourced by the others.
    [ ${#options[@]} -gt 0 ] || continue
    [ "$guests" = 2 ] && [[ " ${options[*]} " != *" --guests 2 "* ]] && continue
    [ "$guests" = 1 ] && [[ " ${options[*]} " == *" --guests 2 "* ]] && continue
    kernels=$(words_of Kernels "$script")
    [[ " ${kernels:-$kernel} " == *" $kernel "* ]] || continue
    if [ "$ALLRAIL_CHECK_LONG" = yes ]; then
      read -r -a longer < <(words_of Long "$script") || true
      options+=("${longer[@]}")
    fi
    try "$(basename "$script" .sh) on $kernel" \
      tests/lab/guest --kernel "$kernel" "${options[@]}" "$@" -- bash "$script" || true
  done
}

there=()
for kernel in 6.1 6.12; do
  try "kernel $kernel" tests/lab/kernel "$kernel" || continue
  # Debian 13 machines are offered no 6.1, which is no failure.
  if tests/lab/kernel "$kernel" >/dev/null 2>&1; then there+=("$kernel"); fi
done
# Emulated processors that wait for each other cost more than they bring: both kernels side by side
# with one each are through in two thirds of what they take one after the other with two. Two
# guests have one each anyway, and need what there is for themselves.
for kernel in "${there[@]}"; do
  if [ "$ALLRAIL_CHECK_LONG" = yes ]; then
    run_scripts "$kernel" 1
  else
    run_scripts "$kernel" 1 --cpus 1 &
  fi
done
wait
for kernel in "${there[@]}"; do
  run_scripts "$kernel" 2
done

# What decides whether the guest lab does as it says: its scripts, this one, the kernel, qemu.
state_of_lab() {
  local kernel
  kernel=$(tests/lab/kernel 6.12)
  { cat tests/lab/* "$0" "$kernel"/{vmlinuz,initrd}; qemu-system-x86_64 --version; } |
    sha256sum | cut -c1-16
}
tested=${ALLRAIL_CACHE:-/var/cache/allrail}/guest-lab-$(state_of_lab)
if [ -e "$tested" ] && [ "$ALLRAIL_CHECK_LONG" != yes ]; then
  skip "the guest lab itself" "it passed on this machine, with the same scripts, kernel and qemu"
  exit 0
fi

# These wait more than they work, so they do it at once.
running=()
# expect_side_by_side NAME ARGS...: of expect.
expect_side_by_side() {
  local name=$1
  shift
  try "$name" expect "$@" &
  running+=($!)
}
# shellcheck disable=SC2016 # The shell in the guest expands these.
expect_side_by_side "the guest lab passes words and the exit code on" 7 '^two  words$' \
  -- bash -c 'echo "$1"; exit 7' sh "two  words"
expect_side_by_side "the guest lab names leftovers" 97 'in guest 0: rdma object: .*rxe0.*type RC
in guest 0: shared memory: /dev/shm/left
in guest 0: process: [0-9]+ ibv_rc_pingpong' \
  -- bash -c 'touch /dev/shm/left; ibv_rc_pingpong -d rxe0 -g 1 & sleep 3'
expect_side_by_side "the guest lab knows a failed kernel" 98 'guest 0, .* failed.*Kernel panic' \
  -- bash -c 'echo c >/proc/sysrq-trigger'
expect_side_by_side "the guest lab boots again" 98 'so the guests are booted again .3 of 3.
Kernel panic' --words rdinit=/none -- true
# shellcheck disable=SC2016 # As above.
expect_side_by_side "the guest lab knows a stuck cable" 98 'cable eth2 .* stuck' --timeout 100 \
  -- bash -c '
    said="NETDEV WATCHDOG: CPU: 0: transmit queue 0 timed out 30011 ms"
    echo "<3>virtio_net virtio8 eth2: $said" >/dev/kmsg
    sleep 1000'
expect_side_by_side "the guest lab ends a hang" 124 'stopped after 40 s' --timeout 40 -- sleep 1000
passed=yes
for pid in "${running[@]}"; do
  wait "$pid" || passed=no
done
if [ "$passed" = yes ]; then
  rm -f "${tested%-*}"-*
  : >"$tested"
fi
