// The secret that the processes of one job share. Rails and control links prove with it that they
// belong together; it is spread by the bootstrap.
#pragma once

#include <array>
#include <cstddef>
#include <span>

namespace allrail::transport {

inline constexpr std::size_t kSecretBytes = 32;

/// libsodium wants to be initialised before its first use. Throws Error{ResourceLimit}.
void ensure_sodium();

/// Wiped when destroyed.
class JobSecret {
 public:
  JobSecret() = default;  // all zero, for tests
  explicit JobSecret(std::span<const std::byte, kSecretBytes> bytes);
  JobSecret(const JobSecret&) = default;
  JobSecret& operator=(const JobSecret&) = default;
  ~JobSecret();
  static JobSecret random();
  std::span<const std::byte, kSecretBytes> bytes() const { return bytes_; }

 private:
  std::array<std::byte, kSecretBytes> bytes_{};
};

}  // namespace allrail::transport
