/*
 * What a rank tells of its calls (shm/progress.hpp): a reader that gets a number and a stamp gets
 * those of one call, and a stamp that was asked for by number is of that call or is unknown.
 *
 * A rank makes five calls, the stamp of call c is 10 + c, and keeps the last two (kRecentCalls).
 * Another process reads at any time.
 *
 *   WITHOUT_ZERO   the number is not set to 0 while the rest changes: must be found
 *   RELAXED_RECENT a kept stamp is a relaxed store, which may be seen before the numbers before
 *                  it: must be found
 */
#define PROCESSES 2
#define WORDS 4
#define DEPTH 4
#include "store_buffer.pml"

#define KEPT 2
#define SEQUENCE 0
#define STAMP 1
#define RECENT 2 /* and RECENT + 1 */
#define CALLS 5
#define STAMP_OF(call) (10 + (call))

#ifdef RELAXED_RECENT
#define STORE_RECENT STORE_RELAXED
#else
#define STORE_RECENT STORE_RELEASE
#endif

proctype Writer() {
  byte leaving = 0, call = 1;
  do
  :: call <= CALLS ->
#ifndef WITHOUT_ZERO
     STORE_RELAXED(0, SEQUENCE, 0);
#endif
     STORE_RELEASE(0, STAMP, STAMP_OF(call));
     STORE_RECENT(0, RECENT + call % KEPT, STAMP_OF(call));
     STORE_RELEASE(0, SEQUENCE, call);
     call++
  :: else -> break
  od
}

/* read_call() and recent_stamp(): the last load is relaxed, but comes after an acquire load. */
proctype Reader() {
  byte leaving = 0, looking = 0, before = 0, stamp = 0, after = 0, asked = 0;
  load(1, SEQUENCE, before);
  load(1, STAMP, stamp);
  load(1, SEQUENCE, after);
  assert(before == 0 || before != after || stamp == STAMP_OF(before));
  select(asked : 1 .. CALLS);
  load(1, SEQUENCE, before);
  load(1, RECENT + asked % KEPT, stamp);
  load(1, SEQUENCE, after);
  assert(!(asked <= before && before - asked < KEPT && asked <= after && after - asked < KEPT) ||
         stamp == STAMP_OF(asked))
}

init {
  atomic {
    run Writer();
    run Reader()
  }
}
