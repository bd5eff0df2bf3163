/*
 * What the rank that talks for a node tells another one in barriers (coll/engine_pace.cpp): it
 * writes its word before it awaits the other's flag and raises its own, and what is read behind
 * that flag is what was written in the same barrier.
 *
 *   ONE_WORD      there is one word instead of two that take turns, and the next barrier may
 *                 overwrite it before it was read: must be found
 *   RELAXED_FLAG  the flag of the rank that talks is a relaxed store, which may be seen before the
 *                 word: must be found
 */
#define PROCESSES 2
#define WORDS 4
#define DEPTH 3
#include "store_buffer.pml"

#define BARRIERS 5
#define ENTERED 0 /* the other's flag */
#define LEAVE 1   /* of the rank that talks */
#ifdef ONE_WORD
#define TOLD(barrier) 2
#else
#define TOLD(barrier) (2 + (barrier) % 2)
#endif
#ifdef RELAXED_FLAG
#define RAISE STORE_RELAXED
#else
#define RAISE STORE_RELEASE
#endif

inline await(me, word, barrier) {
  seen = 0;
  do
  :: seen >= barrier -> break
  :: else -> load(me, word, seen)
  od
}

proctype Talks() {
  byte leaving = 0, looking = 0, barrier = 1, seen = 0;
  do
  :: barrier <= BARRIERS ->
     STORE_RELAXED(0, TOLD(barrier), 10 + barrier);
     await(0, ENTERED, barrier);
     RAISE(0, LEAVE, barrier);
     barrier++
  :: else -> break
  od
}

/* The load of the word is relaxed, but comes after an acquire load of the flag. */
proctype Listens() {
  byte leaving = 0, looking = 0, barrier = 1, seen = 0;
  do
  :: barrier <= BARRIERS ->
     STORE_RELEASE(1, ENTERED, barrier);
     await(1, LEAVE, barrier);
     load(1, TOLD(barrier), seen);
     assert(seen == 10 + barrier);
     barrier++
  :: else -> break
  od
}

init {
  atomic {
    run Talks();
    run Listens()
  }
}
