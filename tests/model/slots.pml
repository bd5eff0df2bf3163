/*
 * The slots of a node segment (coll/slots.hpp, coll/done_counts.hpp): what a rank reads under a
 * flag of a call is what was written for that call, however far another rank has run ahead.
 *
 * Two ranks make five calls over two slots, each an allgather or a broadcast by one of them. Who
 * gives writes its block into the slot and raises its flag (shm::raise); who takes awaits the
 * other's flag, reads the other's block and says that it is done. Before a rank writes it waits
 * until the other one is done with the call that had the slot.
 *
 *   WITHOUT_DONE     it does not wait: must be found
 *   RELAXED_FLAG     the flag is raised by a relaxed store: must be found
 *   RELAXED_DONE     done may be told before the block was read, as a relaxed store would allow on
 *                    processors that move loads behind stores: must be found
 */
#define PROCESSES 2
#define WORDS 8
#define DEPTH 3
#include "store_buffer.pml"

#define SLOTS 2
#define CALLS 5
#define FLAG(rank) (rank)
#define DONE(rank) (2 + (rank))
#define BLOCK(rank, slot) (4 + 2 * (rank) + (slot))

#ifdef RELAXED_FLAG
#define RAISE STORE_RELAXED
#else
#define RAISE STORE_RELEASE
#endif

/* Who gives in a call: 0 or 1 alone, or both. */
#define BOTH 2
byte giver[CALLS + 1];

proctype Rank(byte me) {
  byte leaving = 0, looking = 0, call = 1, seen = 0, slot = 0;
  do
  :: call <= CALLS ->
     slot = call % SLOTS;
     if
     :: giver[call] != 1 - me ->
#ifndef WITHOUT_DONE
        seen = 0;
        do
        :: call <= SLOTS || seen >= call - SLOTS -> break
        :: else -> load(me, DONE(1 - me), seen)
        od;
#endif
        STORE_RELAXED(me, BLOCK(me, slot), call);
        RAISE(me, FLAG(me), call)
     :: else -> skip
     fi;
     if
     :: giver[call] != me ->
        seen = 0;
        do
        :: seen >= call -> break
        :: else -> load(me, FLAG(1 - me), seen)
        od;
#ifdef RELAXED_DONE
        STORE_RELAXED(me, DONE(me), call);
#endif
        load(me, BLOCK(1 - me, slot), seen);
        assert(seen == call)
     :: else -> skip
     fi;
#ifndef RELAXED_DONE
     STORE_RELEASE(me, DONE(me), call);
#endif
     call++
  :: else -> break
  od
}

init {
  byte call = 1;
  do
  :: call <= CALLS ->
     if
     :: giver[call] = 0
     :: giver[call] = 1
     :: giver[call] = BOTH
     fi;
     call++
  :: else -> break
  od;
  atomic {
    run Rank(0);
    run Rank(1)
  }
}
