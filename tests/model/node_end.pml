/*
 * The end of a node (shm/segment.cpp, set_abort() and abort_record(); coll/engine_errors.cpp,
 * await_node()): all ranks have the same first cause, whole, and no byte of a NodeBuffer changes
 * where the error is out.
 *
 * Two ranks are in a call into a NodeBuffer, and each writes its block. Then either has an error of
 * its own, and tells it unless another one did, or finds that one was told. It reads the cause,
 * gives its calls up, awaits that the other one has, and reads both blocks twice. That a rank may
 * die while it tells, and that patience ends, is left out: then other rules hold.
 *
 *   LOAD_AND_STORE    the word is claimed by a load and a store: must be found
 *   RELAXED_TOLD      a relaxed store says that the cause is told: must be found
 *   RELAXED_GAVE_UP   a relaxed store says that a rank gave up: must be found
 *   WITHOUT_AWAIT     nobody awaits the others: must be found
 */
#define PROCESSES 2
#define WORDS 7
#define DEPTH 4
#include "store_buffer.pml"

#define STATE 0 /* NONE, CLAIMED, TOLD */
#define CODE 1
#define TEXT 2
#define GAVE_UP(rank) (3 + (rank))
#define BLOCK(rank) (5 + (rank))
#define NONE 0
#define CLAIMED 1
#define TOLD 2

#ifdef RELAXED_TOLD
#define TELL STORE_RELAXED
#else
#define TELL STORE_RELEASE
#endif
#ifdef RELAXED_GAVE_UP
#define GIVE_UP STORE_RELAXED
#else
#define GIVE_UP STORE_RELEASE
#endif

/* Not memory: whose cause was told, counted from 1. */
byte first = 0;

inline read_twice(me, rank) {
  load(me, BLOCK(rank), seen);
  load(me, BLOCK(rank), again);
  assert(seen == again)
}

proctype Rank(byte me) {
  byte leaving = 0, looking = 0, seen = 0, again = 0;
  bit mine = 0;
  STORE_RELAXED(me, BLOCK(me), 1);
  if
  :: true -> /* an error of its own */
#ifdef LOAD_AND_STORE
     load(me, STATE, seen);
     mine = seen == NONE;
     if
     :: mine -> STORE_RELAXED(me, STATE, CLAIMED)
     :: else -> skip
     fi;
#else
     atomic {
       mine = memory[STATE] == NONE;
       if
       :: mine -> memory[STATE] = CLAIMED
       :: else -> skip
       fi
     }
#endif
     if
     :: mine ->
        assert(first == 0);
        first = me + 1;
        STORE_RELAXED(me, CODE, me + 1);
        STORE_RELAXED(me, TEXT, me + 1);
        TELL(me, STATE, TOLD)
     :: else -> skip
     fi
  :: memory[STATE] != NONE -> skip
  fi;
  seen = NONE;
  do
  :: seen == TOLD -> break
  :: else -> load(me, STATE, seen)
  od;
  load(me, CODE, seen);
  load(me, TEXT, again);
  assert(seen == first && again == first);
  STORE_RELAXED(me, BLOCK(me), 2); /* the last that a copy under way does */
  GIVE_UP(me, GAVE_UP(me), 1);
#ifndef WITHOUT_AWAIT
  seen = 0;
  do
  :: seen == 1 -> break
  :: else -> load(me, GAVE_UP(1 - me), seen)
  od;
#endif
  read_twice(me, 0);
  read_twice(me, 1)
}

init {
  atomic {
    run Rank(0);
    run Rank(1)
  }
}
