/*
 * What one rank of a node does for all of them (shm/once.hpp): a rank that goes on sees what was
 * written, it was written once, and nobody writes where another rank still reads the last result.
 *
 * Two ranks make three calls over two slots. A rank raises its flag with its block beside it,
 * awaits the other's flag, and takes the word of the slot by a compare-and-swap, which reaches
 * memory at once and orders nothing else here. Who gets it reads the other's block, writes the
 * result and says that it is done; who does not waits for that. Then it reads the result, which it
 * may do until it raises its flag in the next call.
 *
 *   RELAXED_DONE     the word is set to done by a relaxed store: must be found
 *   WITHOUT_AWAIT    a rank does not await the other's flag: must be found
 *   LOAD_AND_STORE   the word is taken by a load and a store: must be found
 */
#define PROCESSES 2
#define WORDS 9
#define DEPTH 3
#include "store_buffer.pml"

#define SLOTS 2
#define CALLS 3
#define FLAG(rank) (rank)
#define BLOCK(rank, slot) (2 + 2 * (rank) + (slot))
#define WORD(slot) (6 + (slot))
#define RESULT 8
#define CLAIM(call) (2 * (call) - 1)
#define DONE(call) (2 * (call))

#ifdef RELAXED_DONE
#define FINISH STORE_RELAXED
#else
#define FINISH STORE_RELEASE
#endif

/* How often a result was written, by call. */
byte written[CALLS + 1];

proctype Rank(byte me) {
  byte leaving = 0, looking = 0, call = 1, seen = 0, slot = 0;
  bit mine = 0;
  do
  :: call <= CALLS ->
     slot = call % SLOTS;
     STORE_RELAXED(me, BLOCK(me, slot), call);
     STORE_RELEASE(me, FLAG(me), call);
#ifndef WITHOUT_AWAIT
     seen = 0;
     do
     :: seen >= call -> break
     :: else -> load(me, FLAG(1 - me), seen)
     od;
#endif
#ifdef LOAD_AND_STORE
     load(me, WORD(slot), seen);
     mine = seen < CLAIM(call);
     if
     :: mine -> STORE_RELAXED(me, WORD(slot), CLAIM(call))
     :: else -> skip
     fi;
#else
     atomic {
       mine = memory[WORD(slot)] < CLAIM(call);
       if
       :: mine -> memory[WORD(slot)] = CLAIM(call)
       :: else -> skip
       fi
     }
#endif
     if
     :: mine ->
        written[call]++;
        assert(written[call] == 1);
        load(me, BLOCK(1 - me, slot), seen);
        assert(seen == call);
        STORE_RELAXED(me, RESULT, call);
        FINISH(me, WORD(slot), DONE(call))
     :: else ->
        seen = 0;
        do
        :: seen >= DONE(call) -> break
        :: else -> load(me, WORD(slot), seen)
        od
     fi;
     /* Twice, since it stays what it is until this rank enters the next call. */
     load(me, RESULT, seen);
     assert(seen == call);
     load(me, RESULT, seen);
     assert(seen == call);
     call++
  :: else -> break
  od
}

init {
  atomic {
    run Rank(0);
    run Rank(1)
  }
}
