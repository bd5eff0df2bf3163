#include "tests/multiprocess/collectives/counters.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <new>

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
#define CANNOT_COUNT
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CANNOT_COUNT
#endif
#endif

#ifdef CANNOT_COUNT

namespace counters {
bool can_count() noexcept { return false; }
std::size_t live_bytes() noexcept { return 0; }
bool start() noexcept { return false; }
void stop() noexcept {}
std::uint64_t allocations() noexcept { return 0; }
std::uint64_t locks() noexcept { return 0; }
std::uint64_t system_calls() noexcept { return 0; }
std::uint64_t sends() noexcept { return 0; }
std::string system_call_text() { return {}; }
}  // namespace counters

#else

namespace {

std::atomic<std::size_t> live{0};
// Initial-exec, so that looking at them allocates nothing.
[[gnu::tls_model("initial-exec")]] thread_local bool counting = false;
std::uint64_t allocation_count = 0;  // these three: of the one thread that counts
std::uint64_t lock_count = 0;
std::array<std::uint64_t, 512> system_call_count{};

void count_allocation() noexcept {
  if (counting) ++allocation_count;
}

// A system call of a thread that counts becomes a signal; the handler counts it and makes it. Its
// return is a system call too, so it returns through code of ours, where they pass.
volatile char selector = 0;  // 0: system calls pass, 1: they become signals
constexpr int kSetUserDispatch = 59;
constexpr unsigned long kDispatchOn = 1;
constexpr unsigned long kRestorerFlag = 0x04000000;

extern "C" {
extern const char counters_restorer[];
extern const char counters_restorer_end[];
}
asm(R"(
.text
.globl counters_restorer
counters_restorer:
  mov $15, %eax
  syscall
  ud2
.globl counters_restorer_end
counters_restorer_end:
)");

long system_call(long number, const long long* arguments) noexcept {
  long result = 0;
  register long long fourth asm("r10") = arguments[3];
  register long long fifth asm("r8") = arguments[4];
  register long long sixth asm("r9") = arguments[5];
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(arguments[0]), "S"(arguments[1]), "d"(arguments[2]), "r"(fourth),
                 "r"(fifth), "r"(sixth)
               : "rcx", "r11", "memory");
  return result;
}

void on_system_call(int, siginfo_t* info, void* context) {
  selector = 0;
  auto& registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  const long number = info->si_syscall;
  ++system_call_count[static_cast<std::size_t>(number) % system_call_count.size()];
  const std::array<long long, 6> arguments{registers[REG_RDI], registers[REG_RSI],
                                           registers[REG_RDX], registers[REG_R10],
                                           registers[REG_R8],  registers[REG_R9]};
  registers[REG_RAX] = system_call(number, arguments.data());
  selector = 1;
}

/// As the kernel takes it: the C library would put its own restorer there.
struct KernelAction {
  void (*handler)(int, siginfo_t*, void*);
  unsigned long flags;
  const char* restorer;
  unsigned long mask;
};

bool catch_system_calls() noexcept {
  const KernelAction action{on_system_call, SA_SIGINFO | kRestorerFlag, counters_restorer, 0};
  if (::syscall(SYS_rt_sigaction, SIGSYS, &action, nullptr, sizeof action.mask) != 0) return false;
  return ::prctl(kSetUserDispatch, kDispatchOn, counters_restorer,
                 counters_restorer_end - counters_restorer, &selector) == 0;
}

void* take(std::size_t bytes, std::size_t alignment) {
  void* memory =
      alignment <= alignof(std::max_align_t) ? std::malloc(bytes) : ::memalign(alignment, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  live += ::malloc_usable_size(memory);
  return memory;
}

void give(void* memory) noexcept {
  if (memory == nullptr) return;
  live -= ::malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

namespace counters {

bool can_count() noexcept { return true; }
std::size_t live_bytes() noexcept { return live; }

bool start() noexcept {
  static const bool possible = catch_system_calls();
  if (!possible) return false;
  counting = true;
  selector = 1;
  return true;
}

void stop() noexcept {
  selector = 0;
  counting = false;
}

std::uint64_t allocations() noexcept { return allocation_count; }
std::uint64_t locks() noexcept { return lock_count; }

std::uint64_t system_calls() noexcept {
  std::uint64_t sum = 0;
  for (const std::uint64_t count : system_call_count) sum += count;
  return sum;
}

std::uint64_t sends() noexcept {
  std::uint64_t sum = 0;
  for (const int number : {SYS_sendto, SYS_sendmsg, SYS_write, SYS_writev})
    sum += system_call_count[static_cast<std::size_t>(number)];
  return sum;
}

std::string system_call_text() {
  std::string text;
  for (std::size_t number = 0; number < system_call_count.size(); ++number) {
    if (system_call_count[number] == 0) continue;
    text += std::to_string(number) + ":" + std::to_string(system_call_count[number]) + " ";
  }
  return text;
}

}  // namespace counters

// The other forms of operator new and delete call these.
void* operator new(std::size_t bytes) { return take(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return take(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { give(memory); }
void operator delete(void* memory, std::size_t) noexcept { give(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { give(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { give(memory); }

extern "C" {
// The C library's own names for what it replaces.
void* __libc_malloc(std::size_t bytes) noexcept;
void* __libc_calloc(std::size_t count, std::size_t bytes) noexcept;
void* __libc_realloc(void* memory, std::size_t bytes) noexcept;
void* __libc_memalign(std::size_t alignment, std::size_t bytes) noexcept;

[[gnu::visibility("default")]] void* malloc(std::size_t bytes) noexcept {
  count_allocation();
  return __libc_malloc(bytes);
}
[[gnu::visibility("default")]] void* calloc(std::size_t count, std::size_t bytes) noexcept {
  count_allocation();
  return __libc_calloc(count, bytes);
}
[[gnu::visibility("default")]] void* realloc(void* memory, std::size_t bytes) noexcept {
  count_allocation();
  return __libc_realloc(memory, bytes);
}
[[gnu::visibility("default")]] void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  count_allocation();
  return __libc_memalign(alignment, bytes);
}

[[gnu::visibility("default")]] int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  if (counting) ++lock_count;
  using Lock = int (*)(pthread_mutex_t*);
  static std::atomic<Lock> real{nullptr};
  if (real.load(std::memory_order_relaxed) == nullptr) {
    real = reinterpret_cast<Lock>(::dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  }
  return real.load(std::memory_order_relaxed)(mutex);
}
}

#endif
