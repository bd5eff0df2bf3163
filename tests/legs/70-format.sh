#!/bin/bash
# Every C++ file is as clang-format writes it.
# Limit: 120 s
. tests/legs/common.sh
mapfile -t files < <(git ls-files --cached --others --exclude-standard '*.hpp' '*.cpp')
try "clang-format" clang-format --dry-run -Werror "${files[@]}" || true
