#!/bin/bash
# Fuzzers of everything that reads bytes of others or text of users, two at a time: 10 s each, with
# --long 60 s. An input that makes one fail is printed and kept in build-clang/fuzz/failures; what
# they learn is kept in build-clang/fuzz/corpus.
# Limit: 1500 s
. tests/legs/common.sh
try "configure" configure_clang || exit 0
try "build" ninja -C build-clang fuzzers || exit 0

fuzz() {
  local name=$1 corpus=build-clang/fuzz/corpus/$1 seconds=10
  [ "$ALLRAIL_CHECK_LONG" = no ] || seconds=60
  build-clang/tests/fuzz/"$name" --write-seeds "$corpus" || return 1
  # A fuzzer ends by itself; the limit is for one that hangs where libFuzzer cannot see it. Its own
  # exit code for a failure is 77, which would mean that it was skipped.
  timeout --kill-after=5 $((seconds + 100)) build-clang/tests/fuzz/"$name" \
    -max_total_time=$seconds -timeout=20 -rss_limit_mb=1024 -print_final_stats=1 \
    -error_exitcode=1 -timeout_exitcode=1 \
    -artifact_prefix=build-clang/fuzz/failures/"$name"- "$corpus"
}
mkdir -p build-clang/fuzz/failures
export -f fuzz try pass fail skip
export ALLRAIL_CHECK_RESULTS ALLRAIL_CHECK_LEG ALLRAIL_CHECK_LONG
find build-clang/tests/fuzz -maxdepth 1 -type f -executable -name 'fuzz-*' -printf '%f\n' | sort |
  xargs -P 2 -I{} bash -c 'try {} fuzz {} || true'
