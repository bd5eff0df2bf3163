#!/bin/bash
# Faults between two guests while their ranks make allgathers and check every byte: see campaign.py.
# Options: --guests 2 --timeout 700
# Long: --timeout 6000
# Kernels: 6.12
. tests/guest/common.sh
# Before the faults, what works without them. One boot does for both.
[ $# -gt 0 ] || bash tests/guest/two_guests.sh
[ "${ALLRAIL_TEST_LONG:-}" != 1 ] || set -- --long "$@"
python3 -B tests/guest/campaign.py "$@"
