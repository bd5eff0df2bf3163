#!/bin/bash
# Four namespace hosts with two rails each, started by prterun: every file in tests/cluster.
# Limit: 1500 s
. tests/legs/common.sh
reason=$(why_no_lab)
if [ -n "$reason" ]; then
  skip "cluster" "$reason"
  exit 0
fi
try "Debian 13 build" build_in_lab || exit 0
# Every cluster has hosts of its own. Two at once, for the longest one mostly waits.
for script in tests/cluster/*.sh; do
  read -r -a options < <(sed -n 's/^# Options: //p' "$script")
  while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n || true; done
  try "$(basename "$script" .sh)" \
    tests/lab/cluster "${options[@]}" --shell-in-hosts "$script" &
done
wait
