#include "tests/unit/job/failing_new.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

thread_local std::uint64_t left = 0;  // until the next that fails; 0: none does
thread_local bool all_fail = false;
thread_local bool failed = false;

void* take(std::size_t bytes, std::size_t alignment) {
  if (left > 0 && --left == 0) {
    failed = true;
    if (all_fail) left = 1;
    throw std::bad_alloc();
  }
  void* const memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void allrail::testing::fail_allocation(std::uint64_t number, bool and_later) noexcept {
  left = number;
  all_fail = and_later;
  failed = false;
}

bool allrail::testing::stop_failing() noexcept {
  left = 0;
  return failed;
}

// The other forms call these.
void* operator new(std::size_t bytes) { return take(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return take(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
