#!/bin/bash
# clang-tidy: with --long every source file of the library and the programs, else those that differ
# from the last commit or were changed by it, six at most: a file takes several seconds.
# Limit: 1200 s
. tests/legs/common.sh
try "configure" configure_clang || exit 0
sources=('lib/*.cpp' 'transport/*.cpp' 'shm/*.cpp' 'coll/*.cpp' 'launcher/*.cpp' 'perf/*.cpp')
if [ "$ALLRAIL_CHECK_LONG" = yes ]; then
  mapfile -t files < <(git ls-files --cached --others --exclude-standard "${sources[@]}")
else
  mapfile -t files < <({
    git ls-files --modified --others --exclude-standard "${sources[@]}"
    git diff --name-only --diff-filter=AM HEAD~1 HEAD -- "${sources[@]}" 2>/dev/null
  } | sort -u | head -n 6)
fi
[ ${#files[@]} -gt 0 ] || exit 0
check_file() { clang-tidy --quiet --warnings-as-errors='*' -p build-clang "$1" 2>/dev/null; }
export -f check_file
try "clang-tidy of ${#files[@]} files" \
  xargs -P "$(nproc)" -I{} bash -c 'check_file {}' < <(printf '%s\n' "${files[@]}") || true
