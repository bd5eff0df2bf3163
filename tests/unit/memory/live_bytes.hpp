// Counts what operator new has handed out in this process and not got back. Linked into a test, it
// replaces operator new and delete there.
#pragma once

#include <cstddef>

namespace allrail::testing {

std::size_t live_bytes();

/// What `make()` returns is alive while the bytes are counted: these are what it keeps, without
/// what it needed on the way.
template <class Make>
std::size_t kept_bytes(const Make& make) {
  const std::size_t before = live_bytes();
  const auto kept = make();
  // The compiler may leave out an allocation that nothing looks at.
  asm volatile("" : : "r"(&kept) : "memory");
  return live_bytes() - before;
}

}  // namespace allrail::testing
