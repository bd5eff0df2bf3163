/*
 * Who is inside Allrail (lib/entry_gate.hpp): the user's thread, which comes and goes without a
 * fence, and the helper, which runs membarrier(2) between its store and its second look, are never
 * inside at once, and who comes in sees what the other one wrote.
 *
 * The user's thread comes in three times, and waits if it finds the helper inside. The helper tries
 * three times, and stays outside if it finds the user's thread there. Whoever is inside reads the
 * one word that both use and writes the next number. The loads of `inside_` are in program order
 * here; the helper's first one is relaxed and decides nothing but whether it tries at all.
 *
 *   WITHOUT_MEMBARRIER   the helper has only a fence of its own: must be found
 *   WITHOUT_SECOND_LOOK  it does not look again behind its fence: must be found
 *   RELAXED_LEAVE        the user's thread leaves by a relaxed store: must be found
 *   RELAXED_HELPER       the helper leaves by one: must be found
 */
#define PROCESSES 2
#define WORDS 3
#define DEPTH 4
#include "store_buffer.pml"

#define USER 0
#define HELPER 1
#define TURNS 3
#define INSIDE 0
#define HELPER_INSIDE 1
#define STATE 2

#ifdef RELAXED_LEAVE
#define LEAVE STORE_RELAXED
#else
#define LEAVE STORE_RELEASE
#endif
#ifdef RELAXED_HELPER
#define HELPER_LEAVE STORE_RELAXED
#else
#define HELPER_LEAVE STORE_RELEASE
#endif

/* Not memory: how many are inside, and what the last of them wrote. */
byte threads_inside = 0;
byte written = 0;

inline use_state(me) {
  threads_inside++;
  assert(threads_inside == 1);
  load(me, STATE, seen);
  assert(seen == written);
  written++;
  STORE_RELAXED(me, STATE, written);
  assert(threads_inside == 1);
  threads_inside--
}

proctype User() {
  byte leaving = 0, looking = 0, turn = 0, seen = 0;
  do
  :: turn < TURNS ->
     STORE_RELAXED(USER, INSIDE, 1);
     do
     :: load(USER, HELPER_INSIDE, seen);
        if
        :: seen == 0 -> break
        :: else -> skip
        fi
     od;
     use_state(USER);
     LEAVE(USER, INSIDE, 0);
     turn++
  :: else -> break
  od
}

proctype Helper() {
  byte leaving = 0, looking = 0, turn = 0, seen = 0;
  do
  :: turn < TURNS ->
     turn++;
     load(HELPER, INSIDE, seen);
     if
     :: seen == 0 ->
        STORE_RELAXED(HELPER, HELPER_INSIDE, 1);
        flush(HELPER);
#ifndef WITHOUT_MEMBARRIER
        flush(USER);
#endif
#ifdef WITHOUT_SECOND_LOOK
        seen = 0;
#else
        load(HELPER, INSIDE, seen);
#endif
        if
        :: seen == 0 -> use_state(HELPER)
        :: else -> skip
        fi;
        HELPER_LEAVE(HELPER, HELPER_INSIDE, 0)
     :: else -> skip
     fi
  :: else -> break
  od
}

init {
  atomic {
    run User();
    run Helper()
  }
}
