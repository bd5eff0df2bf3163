#include "transport/job_secret.hpp"

#include <algorithm>

#include <sodium.h>

#include "lib/base/error.hpp"

namespace allrail::transport {

void ensure_sodium() {
  static const int result = sodium_init();
  if (result < 0) base::fail(Code::ResourceLimit, "libsodium cannot be initialised");
}

JobSecret::JobSecret(std::span<const std::byte, kSecretBytes> bytes) {
  std::copy(bytes.begin(), bytes.end(), bytes_.begin());
}

JobSecret::~JobSecret() { sodium_memzero(bytes_.data(), bytes_.size()); }

JobSecret JobSecret::random() {
  ensure_sodium();
  JobSecret secret;
  randombytes_buf(secret.bytes_.data(), secret.bytes_.size());
  return secret;
}

}  // namespace allrail::transport
