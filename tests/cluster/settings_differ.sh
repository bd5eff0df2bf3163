#!/bin/bash
# Ranks of four hosts with different settings: every rank says which, and of which two ranks, also
# one that asks for what the others have published when those have long compared it. The job goes
# on when a rank has said so and left, so a rank that asks in vain would wait until its time is
# over, and say that.
# Options: --timeout 150
stop() {
  echo "settings_differ: $*"
  cat /tmp/output
  exit 1
}

# The first question of a rank that has this comes a second late.
cat >/tmp/late.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
int PMIx_Get_nb(const void* of, const char* key, const void* info, size_t count, void* call,
                void* data) {
  static int asked = 0;
  int (*next)(const void*, const char*, const void*, size_t, void*, void*) =
      dlsym(RTLD_NEXT, "PMIx_Get_nb");
  if (strncmp(key, "allrail.", 8) == 0 && asked++ == 0) sleep(1);
  return next(of, key, info, count, call, data);
}
END
gcc -shared -fPIC -o /tmp/late.so /tmp/late.c

export ALLRAIL_BOOTSTRAP_TIMEOUT=15s
for late in none 0 1 2 3 0 1; do
  # shellcheck disable=SC2016
  differ='[ "$PMIX_RANK" != '$late' ] || export LD_PRELOAD=/tmp/late.so
    export ALLRAIL_PORTS=$((PMIX_RANK + 1)); "$@" 2>&1 || true'
  prun -n 4 timeout 60 sh -c "$differ" sh /build/perf/allrail-bench allgather --sizes 8:8 \
    >/tmp/output || true
  # Lines of several ranks may come as one.
  told=$(grep -o "ALLRAIL_PORTS is '1' on rank 0 and ALLRAIL_PORTS is '2' on rank 1;" /tmp/output |
    wc -l)
  [ "$told" = 4 ] || stop "with rank $late late $told of 4 ranks say what differs"
done
