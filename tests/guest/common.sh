# Sourced by the tests that run in a guest.
# shellcheck shell=bash
set -euo pipefail

# No test looks at such devices, and where each step is emulated loading these libraries into every
# rank takes long.
HWLOC_PLUGINS_BLACKLIST=hwloc_gl.so,hwloc_levelzero.so,hwloc_opencl.so,hwloc_pci.so
export HWLOC_PLUGINS_BLACKLIST+=,hwloc_xml_libxml.so

fail() {
  echo "$*" >&2
  exit 1
}

# What the server of a pair is started with: (ssh guest1) has it in the other guest.
server=()

# run_pair ADDRESS COMMAND...: one of perftest's or rdma-core's programs as a server and as its
# client, 10 iterations over port 18515 for the exchange of addresses.
run_pair() {
  local address=$1 pid output
  shift
  "${server[@]}" "$@" >/tmp/server.log 2>&1 &
  pid=$!
  # A look from outside, because the server takes the first connection for its client.
  until "${server[@]}" ss -Hltn 'sport = :18515' | grep -q .; do
    kill -0 "$pid" || fail "the server of $* ended: $(cat /tmp/server.log)"
    sleep 0.2
  done
  output=$("$@" "$address") || fail "$* $address failed: $output"
  wait "$pid" || fail "the server of $* failed: $(cat /tmp/server.log)"
  grep -Eq '^10 iters in |^ *[0-9]+ +10 ' <<<"$output" ||
    fail "$* says nothing of 10 iterations: $output"
}
