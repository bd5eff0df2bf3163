// `rep movsb` moves whole lines and asks nobody for what was in those that it writes. glibc takes
// it on processors of Intel, and since 2.39 not on those of AMD for its one weakness there: where
// the destination lies less than a line behind the source, seen within pages of 4 KiB, every load
// seems to need what the store before it writes (glibc's bug 30994). Where blocks lie in node
// memory keeps clear of that (shm/layout.cpp).
#include "lib/base/copy.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ALLRAIL_COPIES_ARE_WATCHED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ALLRAIL_COPIES_ARE_WATCHED 1
#endif
#endif

// Sanitizers do not see what an instruction of the assembler reads and writes.
#if defined(__x86_64__) && !defined(ALLRAIL_COPIES_ARE_WATCHED)
#define ALLRAIL_HAS_STRING_COPIES 1
#include <cpuid.h>
#endif

namespace allrail::base {

#ifdef ALLRAIL_HAS_STRING_COPIES

namespace {

/// Those of AMD whose short moves are fast, since Zen 3. For other processors memcpy() knows best.
bool prefers_strings() noexcept {
  constexpr unsigned kLeaf = 7;
  constexpr unsigned kFastShortMoves = 1U << 4;  // FSRM, in edx
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  __builtin_cpu_init();
  return __builtin_cpu_is("amd") != 0 && __get_cpuid_count(kLeaf, 0, &eax, &ebx, &ecx, &edx) != 0 &&
         (edx & kFastShortMoves) != 0;
}

const bool copies_by_string = prefers_strings();

}  // namespace

void copy_long_block(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept {
  if (copies_by_string && bytes <= kMostCopiedByString) {
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
  } else {
    std::memcpy(to, from, bytes);
  }
}

#else

void copy_long_block(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept {
  std::memcpy(to, from, bytes);
}

#endif

}  // namespace allrail::base
