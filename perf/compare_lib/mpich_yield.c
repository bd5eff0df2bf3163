// Preloaded into MPICH's launcher and ranks where ranks outnumber cores. Stock MPICH takes whole
// time slices per call there, for two reasons; without them it is at its best.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

// Its UCX device never gives up the core while it waits.
unsigned ucp_worker_progress(void* worker) {
  static unsigned (*progress)(void*) = NULL;
  if (progress == NULL) progress = (unsigned (*)(void*))dlsym(RTLD_NEXT, "ucp_worker_progress");
  const unsigned events = progress(worker);
  if (events == 0) sched_yield();
  return events;
}

// Its launcher starts every rank in a session of its own. Linux schedules sessions as groups
// (autogroup), and sched_yield() yields to nobody in another group.
pid_t setsid(void) { return getpid(); }
