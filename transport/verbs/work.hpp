// What a link may have posted, and what its work requests are called.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/striping.hpp"

namespace allrail::transport::verbs {

/// Chunks and control messages that a link may have in flight.
inline constexpr int kQueueDepth = 64;
inline constexpr int kControlDepth = 16;
/// Receives that a link has posted: whatever the peer may have in flight, twice, so that it goes on
/// while word of receives posted again is on its way.
inline constexpr int kReceiveDepth = 2 * (kQueueDepth + kControlDepth);
/// After so many receives posted again the peer is told.
inline constexpr int kCreditEvery = kReceiveDepth / 4;
/// Credit words in flight: each stands for kCreditEvery receives, of which there are four times as
/// many, and one more while its completion was not seen.
inline constexpr int kCreditDepth = 8;
inline constexpr int kSendDepth = kQueueDepth + kControlDepth + kCreditDepth;
inline constexpr int kCompletionsPerLink = kSendDepth + kReceiveDepth;
/// Links that share a completion queue, where the device has queues so long.
inline constexpr int kLinksPerCompletionQueue = 64;
static_assert(kReceiveDepth - kCreditEvery >= kQueueDepth + kControlDepth,
              "a full queue fits in what the peer knows to be posted");
static_assert(kCreditDepth * kCreditEvery >= kReceiveDepth, "no credit word waits for a slot");
static_assert(kReceiveDepth >= kSendDepth, "the longest work queue is the one of receives");
static_assert(kControlDepth < 64, "one bit per buffer, in Link::free_control");
static_assert(kReceiveDepth <= UINT16_MAX, "WorkId::place names every receive and every send");
static_assert(kCompletionsPerLink >= kSendDepth + kReceiveDepth,
              "a link that breaks has a completion of everything, of unsignalled sends too");
/// One in so many sends is signalled, sooner where they are so long together, and the last of every
/// list is: a completion tells that all sends before it are done, too. So nothing that was posted
/// waits for something that was not; a link that is full hears of its first part early; and rates
/// and round trips, which are measured by completions, err by so many bytes at most.
inline constexpr int kSendsPerSignal = 8;
inline constexpr std::uint32_t kBytesPerSignal = 16U << 10;
static_assert(kQueueDepth / 4 >= kSendsPerSignal, "a full queue is told of in parts");
static_assert(kLeastWindowBytes / 4 >= kBytesPerSignal, "so is the smallest window");
/// Completions that are taken from a queue at once.
inline constexpr std::size_t kCompletionBatch = 64;
inline constexpr std::uint32_t kMaxChunkBytes = 1U << 20;
inline constexpr std::uint32_t kWantedInlineBytes = 220;

/// What a work request was for, in its wr_id, so that its completion finds the link, or learns that
/// the connection it belongs to is gone.
struct WorkId {
  enum class Kind : std::uint8_t { Send, Receive, Taken };
  Kind kind = Kind::Send;
  std::uint16_t link = 0;
  std::uint32_t generation = 0;  // 24 bits
  std::uint16_t place = 0;       // in the SendQueue, or the buffer of a receive

  std::uint64_t encode() const {
    return static_cast<std::uint64_t>(kind) << 56 | static_cast<std::uint64_t>(link) << 40 |
           static_cast<std::uint64_t>(generation & 0xffffffU) << 16 | place;
  }
  static WorkId decode(std::uint64_t id) {
    return {static_cast<Kind>(id >> 56), static_cast<std::uint16_t>(id >> 40),
            static_cast<std::uint32_t>(id >> 16) & 0xffffffU, static_cast<std::uint16_t>(id)};
  }
};

}  // namespace allrail::transport::verbs
