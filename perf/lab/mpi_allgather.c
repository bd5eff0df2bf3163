// Times MPI_Allgather the way allrail-bench times Allrail, for perf/lab/run:
//   mpi_allgather MODE ITERATIONS WARMUP BYTES...
// isolated:  a barrier, then one timed call; every rank takes its median and its mean.
// streaming: eleven batches of calls back to back between two barriers; the same of the batches.
// Rank 0 prints one JSON object per line: p50 and avg are means over the ranks, max is the slowest
// rank's p50.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static void call(char* send, char* recv, int bytes) {
  MPI_Allgather(send, bytes, MPI_BYTE, recv, bytes, MPI_BYTE, MPI_COMM_WORLD);
}

// Fill in this rank's median and mean time of a call, in microseconds.
static void measure_isolated(int iterations, char* send, char* recv, int bytes, double* times,
                             double* p50, double* avg) {
  double total = 0;
  for (int i = 0; i < iterations; i++) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double before = MPI_Wtime();
    call(send, recv, bytes);
    times[i] = (MPI_Wtime() - before) * 1e6;
    total += times[i];
  }
  qsort(times, (size_t)iterations, sizeof(double), compare);
  *p50 = times[iterations / 2];
  *avg = total / iterations;
}

// As allrail-bench does it: batches between two barriers, each giving one time per call.
static void measure_streaming(int iterations, char* send, char* recv, int bytes, double* times,
                              double* p50, double* avg) {
  const int batches = 11;
  const int per_batch = iterations > batches ? iterations / batches : 1;
  double total = 0;
  for (int batch = 0; batch < batches; batch++) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < per_batch; i++) call(send, recv, bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    times[batch] = (MPI_Wtime() - start) * 1e6 / per_batch;
    total += times[batch];
  }
  qsort(times, (size_t)batches, sizeof(double), compare);
  *p50 = times[batches / 2];
  *avg = total / batches;
}

// Every byte of every block, once per size, outside the timed loop.
static long wrong_bytes(char* send, char* recv, int bytes, int rank, int size) {
  long wrong = 0;
  memset(send, rank + 1, (size_t)bytes);
  memset(recv, 0, (size_t)bytes * (size_t)size);
  call(send, recv, bytes);
  for (int r = 0; r < size; r++) {
    for (int i = 0; i < bytes; i++) wrong += recv[(size_t)r * (size_t)bytes + (size_t)i] != r + 1;
  }
  return wrong;
}

static void run_size(int isolated, int iterations, int warmup, int bytes, int rank, int size) {
  char* send = malloc((size_t)bytes);
  char* recv = malloc((size_t)bytes * (size_t)size);
  double* times = malloc(sizeof(double) * (size_t)(iterations + 11));
  const long wrong = wrong_bytes(send, recv, bytes, rank, size);
  double mine[3], sum[3], max[3];
  for (int i = 0; i < warmup; i++) call(send, recv, bytes);
  if (isolated) {
    measure_isolated(iterations, send, recv, bytes, times, &mine[0], &mine[1]);
  } else {
    measure_streaming(iterations, send, recv, bytes, times, &mine[0], &mine[1]);
  }
  mine[2] = (double)wrong;
  MPI_Reduce(mine, sum, 3, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  MPI_Reduce(mine, max, 3, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  if (rank == 0) {
    printf(
        "{\"bytes_per_rank\": %d, \"time_us\": {\"p50\": %.3f, \"avg\": %.3f, \"max\": %.3f}, "
        "\"wrong_bytes\": %.0f}\n",
        bytes, sum[0] / size, sum[1] / size, max[0], sum[2]);
    fflush(stdout);
  }
  free(send);
  free(recv);
  free(times);
}

int main(int argc, char** argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc < 5) {
    if (rank == 0) fprintf(stderr, "usage: mpi_allgather isolated|streaming N WARMUP BYTES...\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  const int isolated = strcmp(argv[1], "isolated") == 0;
  for (int i = 4; i < argc; i++) {
    run_size(isolated, atoi(argv[2]), atoi(argv[3]), atoi(argv[i]), rank, size);
  }
  MPI_Finalize();
  return 0;
}
