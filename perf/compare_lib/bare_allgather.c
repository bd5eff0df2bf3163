// What the machine itself allows: an allgather written by hand for just this lab, without headers,
// checks, failures or choices, timed as mpi_collective.c times the libraries'.
//   bare_allgather HOSTS PER_HOST spin|yield isolated|streaming ITERATIONS WARMUP BYTES...
// Every rank stores its block in memory that its host shares and raises a flag; the first rank of a
// host exchanges blocks with other hosts by recursive doubling over plain sockets, one per rail and
// host, raises a flag, and all copy the result out. With one rank per host no result is copied.
// HOSTS is a power of two. Ranks are numbered host by host (PMIX_RANK), hosts as in
// tests/lab/cluster.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { kBatches = 11, kRails = 2, kMostHosts = 16, kPort = 19123, kOneRailBytes = 32 << 10 };
enum { kMostPerHost = 64 };

typedef struct {
  _Alignas(64) _Atomic uint64_t call;
} Flag;

typedef struct {
  Flag entered[kMostPerHost];
  Flag arrived;
  _Alignas(64) unsigned char slots[];  // two, which calls take by turns
} Segment;

static int rank, host, hosts, per_host, spins;
static int sockets[kRails][kMostHosts];
static Segment* segment;
static size_t slot_bytes;
static uint64_t calls;

static void fail(const char* what) {
  perror(what);
  _exit(1);
}

static void pause_a_moment(void) {
  if (spins) {
    __builtin_ia32_pause();
  } else {
    sched_yield();
  }
}

static void await(const Flag* flag, uint64_t call) {
  while (atomic_load_explicit(&flag->call, memory_order_acquire) < call) pause_a_moment();
}

static struct sockaddr_in address_of(int rail, int of_host) {
  char text[32];
  snprintf(text, sizeof text, "10.77.%d.%d", rail, 10 + of_host);
  return (struct sockaddr_in){
      .sin_family = AF_INET, .sin_port = htons(kPort), .sin_addr = {.s_addr = inet_addr(text)}};
}

static int connect_to(int rail, int other) {
  const struct sockaddr_in address = address_of(rail, other);
  for (int tries = 0; tries < 5000; tries++) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (const struct sockaddr*)&address, sizeof address) == 0) return fd;
    close(fd);
    usleep(2000);
  }
  fail("connect");
  return -1;
}

// The lower host connects and says which it is.
static void connect_rail(int rail) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  const struct sockaddr_in mine = address_of(rail, host);
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener, (const struct sockaddr*)&mine, sizeof mine) != 0) fail("bind");
  if (listen(listener, kMostHosts) != 0) fail("listen");
  for (int other = host + 1; other < hosts; other++) {
    const char me = (char)host;
    sockets[rail][other] = connect_to(rail, other);
    if (write(sockets[rail][other], &me, 1) != 1) fail("write");
  }
  for (int i = 0; i < host; i++) {
    const int fd = accept(listener, NULL, NULL);
    char other = 0;
    if (read(fd, &other, 1) != 1) fail("read");
    sockets[rail][(int)other] = fd;
  }
  for (int other = 0; other < hosts; other++) {
    if (other == host) continue;
    setsockopt(sockets[rail][other], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  close(listener);
}

// Sends and receives as many bytes at once; long ones half over either rail.
static void swap_blocks(int other, int round, const unsigned char* out, unsigned char* in,
                        size_t bytes) {
  const int rails = bytes > kOneRailBytes ? kRails : 1;
  const size_t share[kRails] = {rails == 1 ? bytes : bytes / 2, bytes - bytes / 2};
  size_t sent[kRails] = {0}, received[kRails] = {0};
  for (;;) {
    int done = 1, moved = 0;
    for (int i = 0; i < rails; i++) {
      const int fd = sockets[rails == 1 ? round % kRails : i][other];
      const size_t begin = i == 0 ? 0 : share[0];
      if (sent[i] < share[i]) {
        const ssize_t n =
            send(fd, out + begin + sent[i], share[i] - sent[i], MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) fail("send");
        if (n > 0) sent[i] += (size_t)n, moved = 1;
      }
      if (received[i] < share[i]) {
        const ssize_t n = recv(fd, in + begin + received[i], share[i] - received[i], MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) fail("recv");
        if (n > 0) received[i] += (size_t)n, moved = 1;
      }
      done = done && sent[i] == share[i] && received[i] == share[i];
    }
    if (done) return;
    if (!moved) pause_a_moment();
  }
}

// `area` holds the blocks of all hosts, of which mine is there.
static void exchange(unsigned char* area, size_t bytes) {
  for (int distance = 1, round = 0; distance < hosts; distance *= 2, round++) {
    const int other = host ^ distance;
    const size_t mine = (size_t)(host & ~(distance - 1)),
                 theirs = (size_t)(other & ~(distance - 1));
    swap_blocks(other, round, area + mine * bytes, area + theirs * bytes, (size_t)distance * bytes);
  }
}

static void allgather(const unsigned char* send, unsigned char* receive, size_t bytes) {
  const uint64_t call = ++calls;
  if (per_host == 1) {
    memcpy(receive + (size_t)host * bytes, send, bytes);
    exchange(receive, bytes);
    return;
  }
  unsigned char* const slot = segment->slots + call % 2 * slot_bytes;
  const int local = rank % per_host;
  memcpy(slot + (size_t)rank * bytes, send, bytes);
  atomic_store_explicit(&segment->entered[local].call, call, memory_order_release);
  if (hosts == 1 || local == 0) {
    for (int i = 0; i < per_host; i++) await(&segment->entered[i], call);
  }
  if (hosts > 1 && local == 0) {
    exchange(slot, bytes * (size_t)per_host);
    atomic_store_explicit(&segment->arrived.call, call, memory_order_release);
  }
  if (hosts > 1) await(&segment->arrived, call);
  memcpy(receive, slot, bytes * (size_t)(hosts * per_host));
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

static void barrier(void) {
  static unsigned char all[kMostHosts * kMostPerHost];
  const unsigned char mine = 1;
  allgather(&mine, all, 1);
}

// This rank's median and mean time of a call.
static void measure(int isolated, int iterations, size_t bytes, const unsigned char* send,
                    unsigned char* receive, double* p50, double* avg) {
  const int samples = isolated ? iterations : kBatches;
  const int per_sample = isolated ? 1 : iterations > kBatches ? iterations / kBatches : 1;
  double* const times = malloc(sizeof(double) * (size_t)samples);
  *avg = 0;
  for (int i = 0; i < samples; i++) {
    barrier();
    const double before = now_us();
    for (int call = 0; call < per_sample; call++) allgather(send, receive, bytes);
    if (!isolated) barrier();
    times[i] = (now_us() - before) / per_sample;
    *avg += times[i] / samples;
  }
  qsort(times, (size_t)samples, sizeof(double), compare);
  *p50 = times[(samples - 1) / 2];
  free(times);
}

static void run_size(const char* mode, int iterations, int warmup, size_t bytes,
                     unsigned char* send, unsigned char* receive) {
  const int ranks = hosts * per_host;
  for (int i = 0; i < warmup; i++) allgather(send, receive, bytes);
  memset(send, rank + 1, bytes);
  double mine[3], all[3 * kMostHosts * kMostPerHost];
  measure(strcmp(mode, "isolated") == 0, iterations, bytes, send, receive, &mine[0], &mine[1]);
  mine[2] = 0;
  for (size_t i = 0; i < bytes * (size_t)ranks; i++) mine[2] += receive[i] != i / bytes + 1;
  allgather((unsigned char*)mine, (unsigned char*)all, sizeof mine);
  double p50 = 0, avg = 0, slowest = 0, wrong = 0;
  for (int i = 0; i < ranks; i++) {
    p50 += all[3 * i] / ranks, avg += all[3 * i + 1] / ranks, wrong += all[3 * i + 2];
    if (all[3 * i] > slowest) slowest = all[3 * i];
  }
  if (rank != 0) return;
  printf(
      "{\"collective\": \"allgather\", \"mode\": \"%s\", \"iterations\": %d, "
      "\"bytes_per_rank\": %zu, \"time_us\": {\"p50\": %.4f, \"avg\": %.4f, "
      "\"p50_slowest_rank\": %.4f}, \"wrong_bytes\": %.0f}\n",
      mode, iterations, bytes, p50, avg, slowest, wrong);
  fflush(stdout);
}

static void share_segment(void) {
  const int fd = open("/dev/shm/bare_allgather", O_CREAT | O_RDWR, 0600);
  const size_t bytes = sizeof(Segment) + 2 * slot_bytes;
  if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) fail("/dev/shm/bare_allgather");
  segment = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (segment == MAP_FAILED) fail("mmap");
}

int main(int argc, char** argv) {
  const char* const my_rank = getenv("PMIX_RANK");
  if (argc < 8 || my_rank == NULL) {
    fprintf(stderr,
            "usage: bare_allgather HOSTS PER_HOST spin|yield isolated|streaming ITERATIONS "
            "WARMUP BYTES..., under a PMIx launcher\n");
    return 2;
  }
  rank = atoi(my_rank), hosts = atoi(argv[1]), per_host = atoi(argv[2]);
  spins = strcmp(argv[3], "spin") == 0;
  if (hosts > kMostHosts || per_host > kMostPerHost) {
    fprintf(stderr, "bare_allgather: at most %d hosts with %d ranks each\n", kMostHosts,
            kMostPerHost);
    return 2;
  }
  host = rank / per_host;
  size_t most_bytes = 3 * sizeof(double);  // of the times that the ranks tell each other
  for (int i = 7; i < argc; i++) {
    if ((size_t)atol(argv[i]) > most_bytes) most_bytes = (size_t)atol(argv[i]);
  }
  slot_bytes = (size_t)(hosts * per_host) * most_bytes;
  if (per_host > 1) share_segment();
  if (hosts > 1 && rank % per_host == 0) {
    for (int rail = 0; rail < kRails; rail++) connect_rail(rail);
  }
  unsigned char* const send = calloc(1, most_bytes);
  unsigned char* const receive = calloc((size_t)(hosts * per_host), most_bytes);
  for (int i = 7; i < argc; i++) {
    run_size(argv[4], atoi(argv[5]), atoi(argv[6]), (size_t)atol(argv[i]), send, receive);
  }
  barrier();
  usleep(100000);  // whoever is last still reads what was sent
  if (rank % per_host == 0 && per_host > 1) unlink("/dev/shm/bare_allgather");
  return 0;
}
