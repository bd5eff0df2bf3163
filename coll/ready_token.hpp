// What a ready token says after its header: where the owner's receive buffer is, on every rail.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "coll/schedule/schedule.hpp"
#include "transport/fabric.hpp"

namespace allrail::coll {

/// Bytes of a ready token in slot memory: header, then window size and one key per rail.
inline constexpr std::uint64_t kTokenBytes = 256;
inline constexpr std::size_t kTokenBodyBytes = kTokenBytes - schedule::kHeaderBytes;

void write_token(const transport::RemoteWindow& window, std::span<std::byte, kTokenBodyBytes> body);
/// False, and `window` as it was, for what write_token() cannot have written. Input is untrusted.
[[nodiscard]] bool read_token(std::span<const std::byte, kTokenBodyBytes> body,
                              transport::RemoteWindow& window);

}  // namespace allrail::coll
