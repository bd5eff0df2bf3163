#include "coll/ready_token.hpp"

#include <cstring>

#include "transport/rail.hpp"

namespace allrail::coll {
namespace {

constexpr std::size_t kCountAt = 8;  // after the window's size
constexpr std::size_t kOffsetAt = 16;
constexpr std::size_t kKeysAt = 24;
static_assert(kKeysAt + transport::kMaxRails * sizeof(transport::RemoteKey) <= kTokenBodyBytes);

}  // namespace

void write_token(const transport::RemoteWindow& window, std::uint64_t offset,
                 std::span<std::byte, kTokenBodyBytes> body) {
  const std::uint64_t count = window.keys.size();
  std::memcpy(body.data(), &window.bytes, sizeof window.bytes);
  std::memcpy(body.data() + kCountAt, &count, sizeof count);
  std::memcpy(body.data() + kOffsetAt, &offset, sizeof offset);
  std::memcpy(body.data() + kKeysAt, window.keys.data(), count * sizeof(transport::RemoteKey));
}

bool read_token(std::span<const std::byte, kTokenBodyBytes> body, ReadyToken& token) {
  std::uint64_t bytes = 0;
  std::uint64_t count = 0;
  std::uint64_t offset = 0;
  std::memcpy(&bytes, body.data(), sizeof bytes);
  std::memcpy(&count, body.data() + kCountAt, sizeof count);
  std::memcpy(&offset, body.data() + kOffsetAt, sizeof offset);
  if (count == 0 || count > static_cast<std::uint64_t>(transport::kMaxRails)) return false;
  if (offset > bytes) return false;
  token.window.bytes = bytes;
  token.offset = offset;
  token.window.keys.resize(count);
  std::memcpy(token.window.keys.data(), body.data() + kKeysAt,
              count * sizeof(transport::RemoteKey));
  return true;
}

bool holds(const ReadyToken& token, std::uint64_t offset, std::uint64_t bytes) noexcept {
  const std::uint64_t room = token.window.bytes - token.offset;
  return offset <= room && bytes <= room - offset;
}

}  // namespace allrail::coll
