/*
 * Falling asleep while a flag is raised (shm/wait.hpp): nobody sleeps for a flag that is up.
 *
 * A rank waits for the flags of two others, one after the other, each time through Sleeper; both
 * others raise theirs through notify(). The bound on a sleep (kMaxSleepMs) is left out, so that a
 * lost wake-up stays lost: spin reports it as a state in which nothing can happen any more.
 *
 *   WITHOUT_MEMBARRIER  the sleeper only has a fence of its own: must be found
 *   WITHOUT_LOOK        it does not look once more before it lies down: must be found
 *   FENCES              a kernel without membarrier(2): every raiser takes the slow path
 */
#define PROCESSES 3
#define WORDS 4
#define DEPTH 3
#include "store_buffer.pml"

#define FLAG 0 /* and FLAG + 1 */
#define SLEEPING 2
#define SLEEPERS 3
#define THE_SLEEPER 2

/* Where the kernel's queue of the futex stands: a waker that comes then wakes. */
bit in_futex = 0;

proctype Raiser(byte me) {
  byte leaving = 0, looking = 0, sleepers = 0, sleeping = 0;
  STORE_RELEASE(me, FLAG + me, 1);
  load(me, SLEEPERS, sleepers);
#ifdef FENCES
  sleepers = 1;
#endif
  if
  :: sleepers != 0 ->
     flush(me);
     load(me, SLEEPING, sleeping);
     if
     :: sleeping != 0 ->
        STORE_RELAXED(me, SLEEPING, 0);
        /* A system call that takes the queue's lock is a fence. */
        flush(me);
        in_futex = 0
     :: else -> skip
     fi
  :: else -> skip
  fi
}

proctype Sleeper() {
  byte leaving = 0, looking = 0, flag = 0, awaited = 0;
  do
  :: awaited < 2 ->
     load(THE_SLEEPER, FLAG + awaited, flag);
     if
     :: flag == 1 -> awaited++
     :: else ->
        /* Sleeper(): the store may come late, the addition has a fence. */
        STORE_RELAXED(THE_SLEEPER, SLEEPING, 1);
        atomic { flush(THE_SLEEPER); memory[SLEEPERS]++ };
#ifndef WITHOUT_MEMBARRIER
#ifndef FENCES
        flush(0);
        flush(1);
#endif
#endif
        flush(THE_SLEEPER);
#ifdef WITHOUT_LOOK
        flag = 0;
#else
        load(THE_SLEEPER, FLAG + awaited, flag);
#endif
        if
        :: flag == 1 -> skip
        :: else ->
           /* The kernel compares and queues under one lock. */
           atomic {
             flush(THE_SLEEPER);
             if
             :: memory[SLEEPING] == 1 -> in_futex = 1
             :: else -> skip
             fi
           };
           in_futex == 0
        fi;
        /* ~Sleeper() */
        STORE_RELAXED(THE_SLEEPER, SLEEPING, 0);
        atomic { flush(THE_SLEEPER); memory[SLEEPERS]-- }
     fi
  :: else -> break
  od;
  assert(memory[FLAG] == 1 && memory[FLAG + 1] == 1)
}

init {
  atomic {
    run Raiser(0);
    run Raiser(1);
    run Sleeper()
  }
}
