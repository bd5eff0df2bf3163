// Random numbers from the system.
#pragma once

#include <cstdint>
#include <random>

namespace allrail::base {

/// A number that no other process draws: identities and tokens, not secrets.
inline std::uint64_t random_number() {
  std::random_device device;
  return static_cast<std::uint64_t>(device()) << 32 | device();
}

}  // namespace allrail::base
