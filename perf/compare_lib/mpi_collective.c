// Times a collective of an MPI library the way allrail-bench times Allrail's (perf/compare and
// perf/lab/guest run it):
//   mpi_collective COLLECTIVE[:BLOCKS] isolated|streaming ITERATIONS WARMUP BYTES...
// BLOCKS, of a v-form: even, ramp (unless something else is said) or single, the blocks of
// allrail-bench --blocks (perf/blocks.hpp), of BYTES in the mean.
// isolated:  a barrier, then one timed call; every rank takes its median and its mean.
// streaming: eleven batches of calls back to back between two barriers; the same of the batches.
// Every byte is checked before and after the timed calls. Rank 0 prints one JSON object per size,
// with the fields of allrail-bench: p50 and avg are means over the ranks.
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kBatches = 11 };

typedef struct {
  int rank, ranks, bytes;       // bytes: of one block, in the mean
  int *counts, *displacements;  // of the blocks of all ranks, in a buffer that has them all
  unsigned char *send, *receive;
} Call;

// A collective is one row of the table below. A buffer has the blocks of all ranks, or one: this
// rank's.
typedef struct {
  const char* name;
  int (*send_blocks)(const Call*);
  int (*receive_blocks)(const Call*);
  void (*run)(const Call*);
  int (*source)(const Call*, int block);     // the rank whose block ends up there
  int (*number)(const Call*, int block);     // and which of its blocks
  enum { kPlain, kOfRanks, kOfPairs } form;  // of a v-form, whose blocks these are
} Collective;

// Of a collective that has one.
enum { kRoot = 0 };

static int one_block(const Call* call) {
  (void)call;
  return 1;
}

static int block_of_each_rank(const Call* call) { return call->ranks; }

static int all_at_root(const Call* call) { return call->rank == kRoot ? call->ranks : 0; }

static int one_at_root(const Call* call) { return call->rank == kRoot; }

static int one_elsewhere(const Call* call) { return call->rank != kRoot; }

static void run_allgather(const Call* call) {
  MPI_Allgather(call->send, call->bytes, MPI_BYTE, call->receive, call->bytes, MPI_BYTE,
                MPI_COMM_WORLD);
}

static void run_gather(const Call* call) {
  MPI_Gather(call->send, call->bytes, MPI_BYTE, call->receive, call->bytes, MPI_BYTE, kRoot,
             MPI_COMM_WORLD);
}

static void run_scatter(const Call* call) {
  MPI_Scatter(call->send, call->bytes, MPI_BYTE, call->receive, call->bytes, MPI_BYTE, kRoot,
              MPI_COMM_WORLD);
}

static void run_broadcast(const Call* call) {
  MPI_Bcast(call->rank == kRoot ? call->send : call->receive, call->bytes, MPI_BYTE, kRoot,
            MPI_COMM_WORLD);
}

static void run_alltoall(const Call* call) {
  MPI_Alltoall(call->send, call->bytes, MPI_BYTE, call->receive, call->bytes, MPI_BYTE,
               MPI_COMM_WORLD);
}

static void run_allgatherv(const Call* call) {
  MPI_Allgatherv(call->send, call->counts[call->rank], MPI_BYTE, call->receive, call->counts,
                 call->displacements, MPI_BYTE, MPI_COMM_WORLD);
}

static void run_gatherv(const Call* call) {
  MPI_Gatherv(call->send, call->counts[call->rank], MPI_BYTE, call->receive, call->counts,
              call->displacements, MPI_BYTE, kRoot, MPI_COMM_WORLD);
}

static void run_scatterv(const Call* call) {
  MPI_Scatterv(call->send, call->counts, call->displacements, MPI_BYTE, call->receive,
               call->counts[call->rank], MPI_BYTE, kRoot, MPI_COMM_WORLD);
}

// What goes to a rank is as long as what comes from it.
static void run_alltoallv(const Call* call) {
  MPI_Alltoallv(call->send, call->counts, call->displacements, MPI_BYTE, call->receive,
                call->counts, call->displacements, MPI_BYTE, MPI_COMM_WORLD);
}

static void run_barrier(const Call* call) {
  (void)call;
  MPI_Barrier(MPI_COMM_WORLD);
}

static int rank_of_same_number(const Call* call, int block) {
  (void)call;
  return block;
}

static int the_root(const Call* call, int block) {
  (void)call, (void)block;
  return kRoot;
}

static int its_only_one(const Call* call, int block) {
  (void)call, (void)block;
  return 0;
}

static int the_one_for_me(const Call* call, int block) {
  (void)block;
  return call->rank;
}

static const Collective kCollectives[] = {
    {"allgather", one_block, block_of_each_rank, run_allgather, rank_of_same_number, its_only_one,
     kPlain},
    {"allgatherv", one_block, block_of_each_rank, run_allgatherv, rank_of_same_number, its_only_one,
     kOfRanks},
    {"gather", one_block, all_at_root, run_gather, rank_of_same_number, its_only_one, kPlain},
    {"gatherv", one_block, all_at_root, run_gatherv, rank_of_same_number, its_only_one, kOfRanks},
    {"scatter", all_at_root, one_block, run_scatter, the_root, the_one_for_me, kPlain},
    {"scatterv", all_at_root, one_block, run_scatterv, the_root, the_one_for_me, kOfRanks},
    {"broadcast", one_at_root, one_elsewhere, run_broadcast, the_root, its_only_one, kPlain},
    {"alltoall", block_of_each_rank, block_of_each_rank, run_alltoall, rank_of_same_number,
     the_one_for_me, kPlain},
    {"alltoallv", block_of_each_rank, block_of_each_rank, run_alltoallv, rank_of_same_number,
     the_one_for_me, kOfPairs},
    {"barrier", one_block, one_block, run_barrier, the_root, its_only_one, kPlain},  // of 0 bytes
};

static const char* const kShapes[] = {"even", "ramp", "single"};

// See perf/blocks.cpp.
static long long block_bytes(const char* shape, long long mean_bytes, long long ranks,
                             long long index) {
  const long long square = index * index, next = (index + 1) * (index + 1);
  if (strcmp(shape, "even") == 0) return mean_bytes;
  if (strcmp(shape, "single") == 0) return index == ranks / 2 ? ranks * mean_bytes : 0;
  return mean_bytes / ranks * (next - square) + mean_bytes % ranks * next / ranks -
         mean_bytes % ranks * square / ranks;
}

static void lay_out_blocks(const Collective* collective, const char* shape, Call* call) {
  long long offset = 0;
  for (int rank = 0; rank < call->ranks; rank++) {
    const int index = collective->form == kOfPairs ? (call->rank + rank) % call->ranks : rank;
    const char* of = collective->form == kPlain ? "even" : shape;
    const long long bytes = block_bytes(of, call->bytes, call->ranks, index);
    // What does not fit is cut here, and nothing is sent then: see below.
    call->counts[rank] = (int)bytes;
    call->displacements[rank] = (int)offset;
    offset += bytes;
  }
  if (collective->form == kPlain || offset <= INT_MAX) return;
  if (call->rank == 0) fprintf(stderr, "%lld bytes are more than MPI can count\n", offset);
  MPI_Abort(MPI_COMM_WORLD, 2);
}

static int count_of(const Call* call, int blocks, int block) {
  return call->counts[blocks == 1 ? call->rank : block];
}

static size_t bytes_before(const Call* call, int blocks, int block) {
  size_t bytes = 0;
  for (int i = 0; i < block; i++) bytes += (size_t)count_of(call, blocks, i);
  return bytes;
}

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void join(double* times, int count, double* p50, double* avg) {
  double total = 0;
  for (int i = 0; i < count; i++) total += times[i];
  qsort(times, (size_t)count, sizeof(double), compare);
  *p50 = times[(count - 1) / 2];
  *avg = total / count;
}

// Fill in this rank's median and mean time of a call, in microseconds.
static void measure_isolated(const Collective* collective, const Call* call, int iterations,
                             double* times, double* p50, double* avg) {
  for (int i = 0; i < iterations; i++) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double before = now_us();
    collective->run(call);
    times[i] = now_us() - before;
  }
  join(times, iterations, p50, avg);
}

static void measure_streaming(const Collective* collective, const Call* call, int iterations,
                              double* times, double* p50, double* avg) {
  const int per_batch = iterations > kBatches ? iterations / kBatches : 1;
  for (int batch = 0; batch < kBatches; batch++) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = now_us();
    for (int i = 0; i < per_batch; i++) collective->run(call);
    MPI_Barrier(MPI_COMM_WORLD);
    times[batch] = (now_us() - start) / per_batch;
  }
  join(times, kBatches, p50, avg);
}

static unsigned char pattern(int rank, int block, int offset, int seed) {
  return (unsigned char)(rank * 37 + block * 101 + offset * 7 + offset / 251 + seed * 13);
}

// One more call with fresh bytes, outside the timed loop; how many of them came out wrong.
static long wrong_bytes(const Collective* collective, const Call* call, int seed) {
  const int sent = collective->send_blocks(call), received = collective->receive_blocks(call);
  long wrong = 0;
  for (int block = 0; block < sent; block++) {
    unsigned char* to = call->send + bytes_before(call, sent, block);
    const int bytes = count_of(call, sent, block);
    for (int i = 0; i < bytes; i++) to[i] = pattern(call->rank, block, i, seed);
  }
  memset(call->receive, 0xA5, bytes_before(call, received, received));
  collective->run(call);
  for (int block = 0; block < received; block++) {
    const unsigned char* from = call->receive + bytes_before(call, received, block);
    const int bytes = count_of(call, received, block);
    const int source = collective->source(call, block), number = collective->number(call, block);
    for (int i = 0; i < bytes; i++) wrong += from[i] != pattern(source, number, i, seed);
  }
  return wrong;
}

static void print_row(const Collective* collective, const char* shape, const char* mode,
                      int iterations, const Call* call, const double* sum, const double* max) {
  const int is_v_form = collective->form != kPlain;
  printf(
      "{\"collective\": \"%s\", \"blocks\": %s%s%s, \"mode\": \"%s\", \"iterations\": %d, "
      "\"bytes_per_rank\": %d, "
      "\"time_us\": {\"p50\": %.4f, \"avg\": %.4f, \"p50_slowest_rank\": %.4f}, "
      "\"wrong_bytes\": %.0f}\n",
      collective->name, is_v_form ? "\"" : "", is_v_form ? shape : "null", is_v_form ? "\"" : "",
      mode, iterations, call->bytes, sum[0] / call->ranks, sum[1] / call->ranks, max[0], sum[2]);
  fflush(stdout);
}

static void run_size(const Collective* collective, const char* shape, const char* mode,
                     int iterations, int warmup, Call call) {
  const int sent = collective->send_blocks(&call), received = collective->receive_blocks(&call);
  lay_out_blocks(collective, shape, &call);
  call.send = malloc(bytes_before(&call, sent, sent) + 1);
  call.receive = malloc(bytes_before(&call, received, received) + 1);
  double* times = malloc(sizeof(double) * (size_t)(iterations + kBatches));
  memset(call.send, 0, bytes_before(&call, sent, sent));
  for (int i = 0; i < warmup; i++) collective->run(&call);
  double mine[3], sum[3], max[3];
  long wrong = wrong_bytes(collective, &call, 1);
  if (strcmp(mode, "isolated") == 0) {
    measure_isolated(collective, &call, iterations, times, &mine[0], &mine[1]);
  } else {
    measure_streaming(collective, &call, iterations, times, &mine[0], &mine[1]);
  }
  wrong += wrong_bytes(collective, &call, 2);
  mine[2] = (double)wrong;
  MPI_Reduce(mine, sum, 3, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Reduce(mine, max, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (call.rank == 0) print_row(collective, shape, mode, iterations, &call, sum, max);
  free(call.send);
  free(call.receive);
  free(times);
}

// What is named before a colon, and the shape of a v-form's blocks behind it.
static const Collective* find_collective(char* name, const char** shape) {
  char* colon = strchr(name, ':');
  *shape = "ramp";
  for (size_t i = 0; colon != NULL && i < sizeof kShapes / sizeof *kShapes; i++) {
    if (strcmp(kShapes[i], colon + 1) == 0) *shape = kShapes[i];
  }
  if (colon != NULL && strcmp(*shape, colon + 1) != 0) return NULL;
  if (colon != NULL) *colon = '\0';
  for (size_t i = 0; i < sizeof kCollectives / sizeof *kCollectives; i++) {
    const int has_shape = colon == NULL || kCollectives[i].form != kPlain;
    if (strcmp(kCollectives[i].name, name) == 0 && has_shape) return &kCollectives[i];
  }
  return NULL;
}

int main(int argc, char** argv) {
  Call call = {0};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &call.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &call.ranks);
  const char* shape = "";
  const Collective* collective = argc > 1 ? find_collective(argv[1], &shape) : NULL;
  const char* mode = argc > 2 ? argv[2] : "";
  const int knows_mode = strcmp(mode, "isolated") == 0 || strcmp(mode, "streaming") == 0;
  if (collective == NULL || !knows_mode || argc < 6) {
    if (call.rank == 0) {
      fprintf(stderr,
              "usage: mpi_collective COLLECTIVE[:even|ramp|single] isolated|streaming ITERATIONS "
              "WARMUP BYTES...\n");
    }
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  call.counts = malloc(sizeof(int) * (size_t)call.ranks);
  call.displacements = malloc(sizeof(int) * (size_t)call.ranks);
  for (int i = 5; i < argc; i++) {
    call.bytes = atoi(argv[i]);
    run_size(collective, shape, mode, atoi(argv[3]), atoi(argv[4]), call);
  }
  free(call.counts);
  free(call.displacements);
  MPI_Finalize();
  return 0;
}
