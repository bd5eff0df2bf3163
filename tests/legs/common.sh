# Sourced by every leg: recording results, building, running meson's tests. A leg runs in the
# repository root; its file names its time limit in a line `# Limit: N s`, which may go on with
# `, with --long N s`.
# shellcheck shell=bash
set -euo pipefail

# Without ./check around it, a leg prints its results.
: "${ALLRAIL_CHECK_RESULTS:=/dev/stdout}" "${ALLRAIL_CHECK_LONG:=no}" "${ALLRAIL_CHECK_LEG:=leg}"
legs=$(dirname "${BASH_SOURCE[0]}")
# Tests that are longer then read it themselves, see tests/multiprocess/collectives/support.py.
[ "$ALLRAIL_CHECK_LONG" != yes ] || export ALLRAIL_TEST_LONG=1
if [ "$(id -u)" = 0 ]; then
  export CCACHE_DIR=${ALLRAIL_CACHE:-/var/cache/allrail}/ccache
  # Another clone finds what this one compiled: build directories are named alike in all of them.
  export CCACHE_NOHASHDIR=1
fi

pass() { printf 'pass\t%s: %s\t\n' "$ALLRAIL_CHECK_LEG" "$1" >>"$ALLRAIL_CHECK_RESULTS"; }

fail() {
  printf 'fail\t%s: %s\t%s\n' "$ALLRAIL_CHECK_LEG" "$1" "$2" >>"$ALLRAIL_CHECK_RESULTS"
  echo "FAILED: $1: $2"
}

skip() {
  printf 'skip\t%s: %s\t%s\n' "$ALLRAIL_CHECK_LEG" "$1" "$2" >>"$ALLRAIL_CHECK_RESULTS"
  echo "skipped: $1: $2"
}

# try NAME COMMAND...: records whether the command succeeds; 77 means that it skipped itself. What
# it printed is shown if it did not succeed, else how long it took.
try() {
  local name=$1 rc=0 output started=$SECONDS
  shift
  output=$("$@" 2>&1) || rc=$?
  case $rc in
    0) pass "$name"; echo "$name: $((SECONDS - started)) s"; return 0 ;;
    77) skip "$name" "$(tail -n 1 <<<"$output")"; return 0 ;;
  esac
  tail -n 60 <<<"$output"
  fail "$name" "exit code $rc: $(tail -n 1 <<<"$output")"
  return 1
}

# Line tables are all that traces need: with full debug information a third of a build's time goes
# into it.
configure() {
  local build=$1
  shift
  if [ -e "$build/build.ninja" ]; then
    meson configure "$build" -Dcpp_args=-g1 "$@"
  else
    meson setup "$build" -Dcpp_args=-g1 "$@"
  fi
}

# The build of most tests on this machine.
configure_gcc() { configure build-check -Dtests=true -Dbuildtype=debugoptimized; }

# The one build by clang, for every leg that needs one. The standard library checks spans and the
# like, as it does by itself in builds on Debian 13.
configure_clang() {
  CXX="ccache clang++" CC="ccache clang" configure build-clang -Dtests=true -Dfuzz=true \
    -Dbuildtype=debugoptimized -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false \
    '-Dcpp_args=-g1 -D_GLIBCXX_ASSERTIONS'
}

# run_tests BUILD [SUITE...]: builds what the suites need, runs them, records every test case. The
# checks over the source tree run only where everything runs: no compiler changes their outcome.
run_tests() {
  local build=$1 suites=() targets=() suite rc=0 fixed=() multiplier=4
  shift
  for suite; do
    suites+=(--suite "$suite")
  done
  if [ $# -gt 0 ]; then
    suites+=(--no-suite tidy)
    # What meson says of tests is as old as its last run, and files may have changed since.
    try "configure again" ninja -C "$build" --quiet build.ninja || return 0
    mapfile -t targets < <(python3 "$legs/suite_targets.py" "$build" "$@")
  fi
  try "build" ninja -C "$build" "${targets[@]}" || return 0
  # An old report of a test that crashes now would read as passed.
  rm -f "$build"/*.xml "$build"/meson-logs/testlog*
  # TSan needs the fixed address layout where the kernel allows to ask for it; the others can do
  # without and do not mind.
  setarch -R true 2>/dev/null && fixed=(setarch -R)
  # The limits of tests are for hangs: a sanitizer or a busy machine is only slow, and a whole grid
  # takes up to forty times as long as its samples. Many tests wait more than they work, so there
  # are two of them for every processor, or as many as the leg says.
  [ "$ALLRAIL_CHECK_LONG" != yes ] || multiplier=40
  "${fixed[@]}" meson test -C "$build" --no-rebuild --print-errorlogs \
    --timeout-multiplier "$multiplier" --num-processes $((${tests_per_processor:-2} * $(nproc))) \
    "${suites[@]}" || rc=$?
  python3 "$legs/meson_results.py" "$build" "$ALLRAIL_CHECK_LEG" "$rc" >>"$ALLRAIL_CHECK_RESULTS"
}

# Makes the Debian 13 build or brings it up to date: a leg that runs alone may find an old one.
build_in_lab() {
  tests/lab/rootfs || return 1
  # shellcheck disable=SC2016 # The shell inside expands these.
  tests/lab/enter bash -c '
    . tests/legs/common.sh
    export CCACHE_DIR=/ccache
    configure /build -Dtests=true -Dbuildtype=debugoptimized &&
      ninja -C /build perf/allrail-bench perf/allrail-info launcher/run/allrail-run \
        tests/conformance/verbs_rail_test tests/multiprocess/collectives/collective-probe \
        tests/multiprocess/collectives/count-probe'
}

# Says why the lab cannot run on this machine, or nothing.
why_no_lab() {
  if [ "$(id -u)" != 0 ]; then
    echo "needs root"
  elif ! unshare --net --mount --pid --fork true 2>/dev/null; then
    echo "this machine does not let root make namespaces"
  fi
}
