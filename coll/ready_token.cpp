#include "coll/ready_token.hpp"

#include <cstring>

#include "transport/rail.hpp"

namespace allrail::coll {
namespace {

constexpr std::size_t kKeysAt = 16;  // after the window's size and the number of keys
static_assert(kKeysAt + transport::kMaxRails * sizeof(transport::RemoteKey) <= kTokenBodyBytes);

}  // namespace

void write_token(const transport::RemoteWindow& window,
                 std::span<std::byte, kTokenBodyBytes> body) {
  const std::uint64_t count = window.keys.size();
  std::memcpy(body.data(), &window.bytes, sizeof window.bytes);
  std::memcpy(body.data() + 8, &count, sizeof count);
  std::memcpy(body.data() + kKeysAt, window.keys.data(), count * sizeof(transport::RemoteKey));
}

bool read_token(std::span<const std::byte, kTokenBodyBytes> body, transport::RemoteWindow& window) {
  std::uint64_t count = 0;
  std::memcpy(&count, body.data() + 8, sizeof count);
  if (count == 0 || count > static_cast<std::uint64_t>(transport::kMaxRails)) return false;
  std::memcpy(&window.bytes, body.data(), sizeof window.bytes);
  window.keys.resize(count);
  std::memcpy(window.keys.data(), body.data() + kKeysAt, count * sizeof(transport::RemoteKey));
  return true;
}

}  // namespace allrail::coll
