// The messages of control links, as bytes: four bytes of length, one of type, then the body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "transport/control/late_rank.hpp"
#include "transport/control/local_node.hpp"

namespace allrail::transport::control {

/// Longest message without its length. A peer that announces more loses the link before anything
/// is stored.
inline constexpr std::size_t kMaxMessageBytes = 1024;
inline constexpr std::size_t kLengthBytes = 4;
inline constexpr std::size_t kMaxCauseBytes = 800;
inline constexpr std::size_t kMaxWaits = 32;

/// A rank that has waited in one call for a while.
struct Wait {
  int rank = -1;
  std::uint64_t sequence = 0;
  std::uint64_t stamp = 0;
  friend bool operator==(const Wait&, const Wait&) = default;
};

struct Heartbeat {
  std::vector<Wait> waits;  // at most kMaxWaits
  LateRank late{};          // rank -1: nobody is known to be
};
struct Goodbye {};
/// A type that this version does not know: a newer peer may send it.
struct Unknown {};
using Message = std::variant<AbortCause, Heartbeat, Goodbye, Unknown>;

/// With length. Longer causes and more waits are cut.
std::vector<std::byte> encode(const AbortCause& cause);
std::vector<std::byte> encode(const Heartbeat& heartbeat);
std::vector<std::byte> encode(const Goodbye& goodbye);

/// Of one message without its length; empty if the bytes are no message.
std::optional<Message> decode(std::span<const std::byte> bytes);

/// The length that stands in front of a message; empty if it is not allowed.
std::optional<std::size_t> decode_length(std::span<const std::byte, kLengthBytes> bytes);

}  // namespace allrail::transport::control
