// The control messages of the fabric: short, sent over any link of a peer, safe to repeat. Every
// one brings the sender's state, whose words only grow, so that no order among rails is needed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/rail.hpp"

namespace allrail::transport {

/// Chunks that one link may have in flight: what one fence message can name.
inline constexpr int kMaxLinkChunks = 64;

struct ControlMessage {
  enum class Kind : std::uint8_t {
    Hello = 1,  // first on every new link: `number` is the sender's generation of it
    State = 2,  // only the state
    Ping = 3,   // `number` comes back in a Pong over the same link
    Pong = 4,
    // My link from my `rail` to your `peer_rail`, my generation `number`, is dead; did these
    // arrive?
    Fence = 5,
    // My end is closed; `mask` has a bit for each chunk that arrived. Names the rails as the fence.
    FenceAnswer = 6,
    Goodbye = 7,  // I have all that I need and leave; my links will close
  };

  Kind kind = Kind::State;
  std::uint8_t rail = 0;
  std::uint8_t peer_rail = 0;
  std::uint16_t count = 0;  // Fence, FenceAnswer: chunks
  std::uint64_t number = 0;
  std::uint64_t consumed = 0;       // all your puts below this one are consumed
  std::uint64_t done = 0;           // the word of tell_done()
  std::uint64_t seen_consumed = 0;  // the highest of these that you told me
  std::uint64_t seen_done = 0;
  std::uint64_t mask = 0;                                  // FenceAnswer
  std::array<std::uint32_t, kMaxLinkChunks> immediates{};  // Fence
};

using ControlBytes = std::array<std::byte, kMaxControlBytes>;

/// Writes the message; returns its length.
std::size_t encode(const ControlMessage& message, ControlBytes& to);
/// Empty for anything that encode() cannot have written.
std::optional<ControlMessage> decode(std::span<const std::byte> from);

}  // namespace allrail::transport
