// What a ready token says after its header: where the owner's receive buffer is, on every rail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "coll/schedule/schedule.hpp"
#include "transport/fabric.hpp"

namespace allrail::coll {

/// Bytes of a ready token in slot memory: header, then window size, where the receive buffer begins
/// in the window, and one key per rail.
inline constexpr std::uint64_t kTokenBytes = 256;
inline constexpr std::size_t kTokenBodyBytes = kTokenBytes - schedule::kHeaderBytes;

struct ReadyToken {
  transport::RemoteWindow window;
  std::uint64_t offset = 0;  // of the receive buffer: a Buffer's window is larger
};

void write_token(const transport::RemoteWindow& window, std::uint64_t offset,
                 std::span<std::byte, kTokenBodyBytes> body);
/// False, and `token` as it was, for what write_token() cannot have written. Input is untrusted.
[[nodiscard]] bool read_token(std::span<const std::byte, kTokenBodyBytes> body, ReadyToken& token);
/// Whether the bytes from `offset` of the receive buffer on lie in the window.
bool holds(const ReadyToken& token, std::uint64_t offset, std::uint64_t bytes) noexcept;

}  // namespace allrail::coll
