/*
 * Memory of processors that are allowed what C++ allows: a store waits in a buffer of its process,
 * where only that process sees it, and stores to different words reach memory in any order. A
 * release store goes there after everything that its process stored before it. Loads happen in
 * program order, which is what acquire loads and loads behind fences ask for; where the code has a
 * relaxed load, the model says why that is enough.
 *
 * To be defined before: PROCESSES, WORDS, DEPTH (stores that one process has under way at
 * most: 3 or 4).
 */
typedef Buffer {
  byte count;
  byte word[DEPTH];
  byte value[DEPTH];
  bit release[DEPTH];
};
byte memory[WORDS];
Buffer buffer[PROCESSES];

/* Whether a store may reach memory before those that were stored ahead of it. */
#define OTHER(p, at, ahead) (buffer[p].word[at] != buffer[p].word[ahead])
#define MAY_PASS(p, at) (buffer[p].count > at && !buffer[p].release[at])

inline leave(p, at) {
  memory[buffer[p].word[at]] = buffer[p].value[at];
  leaving = at;
  do
  :: leaving + 1 < buffer[p].count ->
     buffer[p].word[leaving] = buffer[p].word[leaving + 1];
     buffer[p].value[leaving] = buffer[p].value[leaving + 1];
     buffer[p].release[leaving] = buffer[p].release[leaving + 1];
     leaving++
  :: else -> break
  od;
  buffer[p].count--;
  /* What is not in use is 0: states that differ there are the same. */
  buffer[p].word[buffer[p].count] = 0;
  buffer[p].value[buffer[p].count] = 0;
  buffer[p].release[buffer[p].count] = 0;
  leaving = 0
}

/* A full fence of process p, by itself or forced on it by membarrier(2). */
inline flush(p) {
  atomic {
    do
    :: buffer[p].count > 0 -> leave(p, 0)
    :: else -> break
    od
  }
}

inline put_store(p, to, what, is_release) {
  atomic {
    buffer[p].count < DEPTH;
    buffer[p].word[buffer[p].count] = to;
    buffer[p].value[buffer[p].count] = what;
    buffer[p].release[buffer[p].count] = is_release;
    buffer[p].count++
  }
}
#define STORE_RELAXED(p, to, what) put_store(p, to, what, 0)
#define STORE_RELEASE(p, to, what) put_store(p, to, what, 1)

/* A process sees its own stores at once. */
inline load(p, from, into) {
  atomic {
    into = memory[from];
    looking = 0;
    do
    :: looking < buffer[p].count ->
       if
       :: buffer[p].word[looking] == from -> into = buffer[p].value[looking]
       :: else -> skip
       fi;
       looking++
    :: else -> break
    od;
    looking = 0
  }
}

/* Stores reach memory at some time or other. */
active [PROCESSES] proctype Processor() {
  byte leaving = 0;
end_drained:
  do
  :: atomic { buffer[_pid].count > 0 -> leave(_pid, 0) }
  :: atomic { MAY_PASS(_pid, 1) && OTHER(_pid, 1, 0) -> leave(_pid, 1) }
  :: atomic { MAY_PASS(_pid, 2) && OTHER(_pid, 2, 0) && OTHER(_pid, 2, 1) -> leave(_pid, 2) }
#if DEPTH > 3
  :: atomic { MAY_PASS(_pid, 3) && OTHER(_pid, 3, 0) && OTHER(_pid, 3, 1) && OTHER(_pid, 3, 2) ->
              leave(_pid, 3) }
#endif
  od
}
