// Times a collective of an MPI library the way allrail-bench times Allrail's (perf/compare and
// perf/lab/guest run it):
//   mpi_collective COLLECTIVE isolated|streaming ITERATIONS WARMUP BYTES...
// isolated:  a barrier, then one timed call; every rank takes its median and its mean.
// streaming: eleven batches of calls back to back between two barriers; the same of the batches.
// Every byte is checked before and after the timed calls. Rank 0 prints one JSON object per size,
// with the fields of allrail-bench: p50 and avg are means over the ranks.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kBatches = 11 };

typedef struct {
  int rank, ranks, bytes;  // bytes: of one block
  unsigned char *send, *receive;
} Call;

// A collective is one row of the table below; blocks are counted in units of Call.bytes.
typedef struct {
  const char* name;
  int (*send_blocks)(const Call*);
  int (*receive_blocks)(const Call*);
  void (*run)(const Call*);
  int (*source)(const Call*, int block);  // the rank whose block ends up there
  int (*number)(const Call*, int block);  // and which of its blocks
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
    {"allgather", one_block, block_of_each_rank, run_allgather, rank_of_same_number, its_only_one},
    {"gather", one_block, all_at_root, run_gather, rank_of_same_number, its_only_one},
    {"scatter", all_at_root, one_block, run_scatter, the_root, the_one_for_me},
    {"broadcast", one_at_root, one_elsewhere, run_broadcast, the_root, its_only_one},
    {"alltoall", block_of_each_rank, block_of_each_rank, run_alltoall, rank_of_same_number,
     the_one_for_me},
    {"barrier", one_block, one_block, run_barrier, the_root, its_only_one},  // of 0 bytes
};

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
    unsigned char* to = call->send + (size_t)block * (size_t)call->bytes;
    for (int i = 0; i < call->bytes; i++) to[i] = pattern(call->rank, block, i, seed);
  }
  memset(call->receive, 0xA5, (size_t)received * (size_t)call->bytes);
  collective->run(call);
  for (int block = 0; block < received; block++) {
    const unsigned char* from = call->receive + (size_t)block * (size_t)call->bytes;
    const int source = collective->source(call, block), number = collective->number(call, block);
    for (int i = 0; i < call->bytes; i++) wrong += from[i] != pattern(source, number, i, seed);
  }
  return wrong;
}

static void print_row(const Collective* collective, const char* mode, int iterations,
                      const Call* call, const double* sum, const double* max) {
  printf(
      "{\"collective\": \"%s\", \"mode\": \"%s\", \"iterations\": %d, \"bytes_per_rank\": %d, "
      "\"time_us\": {\"p50\": %.4f, \"avg\": %.4f, \"p50_slowest_rank\": %.4f}, "
      "\"wrong_bytes\": %.0f}\n",
      collective->name, mode, iterations, call->bytes, sum[0] / call->ranks, sum[1] / call->ranks,
      max[0], sum[2]);
  fflush(stdout);
}

static void run_size(const Collective* collective, const char* mode, int iterations, int warmup,
                     Call call) {
  const size_t block = (size_t)call.bytes;
  call.send = malloc(block * (size_t)collective->send_blocks(&call) + 1);
  call.receive = malloc(block * (size_t)collective->receive_blocks(&call) + 1);
  double* times = malloc(sizeof(double) * (size_t)(iterations + kBatches));
  memset(call.send, 0, block * (size_t)collective->send_blocks(&call));
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
  if (call.rank == 0) print_row(collective, mode, iterations, &call, sum, max);
  free(call.send);
  free(call.receive);
  free(times);
}

static const Collective* find_collective(const char* name) {
  for (size_t i = 0; i < sizeof kCollectives / sizeof *kCollectives; i++) {
    if (strcmp(kCollectives[i].name, name) == 0) return &kCollectives[i];
  }
  return NULL;
}

int main(int argc, char** argv) {
  Call call = {0};
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &call.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &call.ranks);
  const Collective* collective = argc > 1 ? find_collective(argv[1]) : NULL;
  const char* mode = argc > 2 ? argv[2] : "";
  const int knows_mode = strcmp(mode, "isolated") == 0 || strcmp(mode, "streaming") == 0;
  if (collective == NULL || !knows_mode || argc < 6) {
    if (call.rank == 0) {
      fprintf(stderr,
              "usage: mpi_collective COLLECTIVE isolated|streaming ITERATIONS WARMUP BYTES...\n");
    }
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  for (int i = 5; i < argc; i++) {
    call.bytes = atoi(argv[i]);
    run_size(collective, mode, atoi(argv[3]), atoi(argv[4]), call);
  }
  MPI_Finalize();
  return 0;
}
