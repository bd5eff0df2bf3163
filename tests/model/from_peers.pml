/*
 * A rank reads a block out of the memory of another one of its node (Execution::read, in
 * coll/execution.cpp): the owner writes where its block lies and raises its flag, and leaves the
 * block as it is until the reader has raised its own, or until it was told that the job has ended.
 * Then its user may do with the memory what it likes, while the reader may still be reading. So the
 * reader looks at the abort word behind its copy, and what it counts is what the owner offered.
 *
 *   WITHOUT_LOOK   the reader does not look at the abort word: must be found
 *   LOOK_FIRST     it looks before it copies, as loads may that no fence keeps apart: must be found
 *   RELAXED_FLAG   the owner's flag is a relaxed store, which may be seen before the block and
 *                  where it lies: must be found
 *   RELAXED_ABORT  the abort word is one, too, and may be seen before the record of why: must be
 *                  found
 */
#define PROCESSES 3
#define WORDS 6
#define DEPTH 3
#include "store_buffer.pml"

#define BLOCK 0
#define OFFER 1  /* where the block lies */
#define READY 2  /* the owner's flag */
#define READ 3   /* the reader's */
#define ABORT 4  /* the word */
#define RECORD 5 /* what it is about */
#define OFFERED 11
#define OVERWRITTEN 99

#ifdef RELAXED_FLAG
#define RAISE STORE_RELAXED
#else
#define RAISE STORE_RELEASE
#endif
#ifdef RELAXED_ABORT
#define SET_ABORT STORE_RELAXED
#else
#define SET_ABORT STORE_RELEASE
#endif

proctype Owner() {
  byte leaving = 0, looking = 0, seen = 0, record = 0;
  STORE_RELAXED(0, BLOCK, OFFERED);
  STORE_RELAXED(0, OFFER, 1);
  RAISE(0, READY, 1);
  do
  :: load(0, READ, seen);
     if
     :: seen == 1 -> break
     :: else -> skip
     fi;
     load(0, ABORT, seen);
     if
     :: seen == 1 ->
        load(0, RECORD, record);
        assert(record == 1);
        break
     :: else -> skip
     fi
  od;
  STORE_RELAXED(0, BLOCK, OVERWRITTEN)
}

proctype Reader() {
  byte leaving = 0, looking = 0, seen = 0, place = 0, copy = 0, ended = 0;
  do
  :: load(1, READY, seen);
     if
     :: seen == 1 -> break
     :: else -> skip
     fi
  od;
  load(1, OFFER, place);
  assert(place == 1);
#ifdef LOOK_FIRST
  load(1, ABORT, ended);
  load(1, BLOCK, copy);
#else
  load(1, BLOCK, copy);
#ifndef WITHOUT_LOOK
  load(1, ABORT, ended);
#endif
#endif
  if
  :: ended == 0 ->
     assert(copy == OFFERED);
     STORE_RELEASE(1, READ, 1)
  :: else -> skip
  fi
}

/* Another rank finds out that somebody died, or does not. */
proctype Aborts() {
  byte leaving = 0, looking = 0;
  if
  :: STORE_RELAXED(2, RECORD, 1);
     SET_ABORT(2, ABORT, 1)
  :: skip
  fi
}

init {
  atomic {
    run Owner();
    run Reader();
    run Aborts()
  }
}
