# Sourced by tests/lab/cluster --shell-in-hosts for perf/compare: runs the launches in a file of
# lines `launch NUMBER LIMIT_S prun|mpich WORDS...`, one after the other.
#   session.sh FILE FOLDER      FOLDER/NUMBER.out and .err are written; the exit code is printed
# shellcheck shell=bash
# shellcheck disable=SC2154 # hosts and per_host are of tests/lab/cluster.

folder=$2

# mpich PRELOADED ARGS...: MPICH's launcher, over the same hosts by the same agent as prterun.
mpich() {
  local list="" i preloaded=$1
  shift
  for ((i = 0; i < hosts; i++)); do
    list+=",n$i:$per_host"
  done
  in_host n0 env LD_PRELOAD="$preloaded" "${limiter[@]}" mpiexec.mpich -launcher ssh \
    -launcher-exec /allrail/tests/lab/launch-agent -iface eth0 -hosts "${list#,}" "$@"
}

launch() {
  local number=$1 rc=0
  limiter=(timeout --kill-after=5 "$2")
  shift 2
  "$@" >"$folder/$number.out" 2>"$folder/$number.err" </dev/null || rc=$?
  echo "$number $rc"
}

# shellcheck disable=SC1090 # The file is made for each run.
source "$1"
