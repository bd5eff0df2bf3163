// Who is told of chunks that arrived, and when: they are acknowledged by what goes back anyway, and
// by frames of their own.
#include <algorithm>

#include "lib/base/clock.hpp"
#include "transport/striping.hpp"
#include "transport/tcp/tcp_rail_state.hpp"

namespace allrail::transport {
namespace {

/// An explicit acknowledgement is sent when this much has come without a frame going back.
constexpr std::uint32_t kUntoldChunks = 16;
constexpr std::uint32_t kUntoldBytes = kMeasuredChunkBytes;
/// Puts that do not ask answer each other: most are acknowledged by the next one that goes back.
/// Those that are not must be before they fill their sender's room, which is 256 KiB at least, and
/// while there are slots left to put out of: four large ones are told in any case.
constexpr std::uint32_t kUnaskedShare = 16;
constexpr std::uint32_t kMostUnasked = kUntoldBytes / 4;
static_assert(std::uint64_t{kUntoldBytes} * kUnaskedShare <= kMinWindowBytes / 2);
constexpr std::int64_t kUntoldNs = 300'000;
/// The same where what goes back has acknowledged so far. Puts that take turns leave one of two
/// rails for eight calls: the next one that goes back over it mostly comes before this. They leave
/// one of three for as many calls as there may be slots, and would wait for this.
constexpr std::int64_t kUntoldWhereAnsweredNs = 2'000'000;
constexpr int kMostRailsToWaitFor = 2;

/// What a chunk counts towards kUntoldBytes.
std::uint32_t untold_bytes_of(const FrameHeader& chunk) {
  if (chunk.bulk != 0) return chunk.bytes;
  const std::uint32_t unasked = chunk.bytes / kUnaskedShare;
  return chunk.bytes > kMinWindowBytes / 2 ? unasked : std::min(unasked, kMostUnasked);
}

}  // namespace

void TcpRail::note_chunk(Stream& stream, const FrameHeader& chunk) {
  if (stream.chunks_untold() == 0) ++untold_links_;
  ++stream.chunks_received;
  stream.bytes_untold += untold_bytes_of(chunk);
}

bool TcpRail::is_much_untold(const Stream& stream) {
  return stream.chunks_untold() >= kUntoldChunks || stream.bytes_untold >= kUntoldBytes;
}

void TcpRail::told(Stream& stream, const FrameHeader& header) {
  if (stream.chunks_untold() == 0) return;
  if (header.type != FrameType::Control) stream.is_answered = header.type == FrameType::Chunk;
  stream.chunks_told = header.received;
  // Chunks that came since then wait from now on; their bytes were few.
  stream.bytes_untold = 0;
  stream.untold_since_ns = 0;
  if (stream.chunks_untold() == 0) --untold_links_;
}

void TcpRail::send_acknowledgement(TcpLink& link) {
  if (!link.doom.empty()) return;
  // Queued frames will carry it.
  if (!link.stream->queue.empty()) return flush(link);
  (void)send_frame(link, FrameHeader(), nullptr);
}

void TcpRail::flush_acknowledgements() {
  // Whoever looks rarely does so at every look, and every one of them has to look at the clock.
  polls_until_clock_ = 0;
  if (untold_links_ == 0) return;
  for (TcpLink* link : up_) {
    if (link->stream->chunks_untold() != 0) send_acknowledgement(*link);
  }
}

void TcpRail::acknowledge_unanswered() {
  if (untold_links_ == 0) return;
  for (TcpLink* link : up_) {
    const Stream& stream = *link->stream;
    if (stream.chunks_untold() != 0 && !stream.is_answered) send_acknowledgement(*link);
  }
}

void TcpRail::check_acknowledgements() {
  const std::int64_t now_ns = base::now_ns();
  const std::int64_t answered_ns =
      options_.rail_count <= kMostRailsToWaitFor ? kUntoldWhereAnsweredNs : kUntoldNs;
  for (TcpLink* link : up_) {
    Stream& stream = *link->stream;
    if (stream.chunks_untold() == 0) continue;
    if (stream.untold_since_ns == 0) {
      stream.untold_since_ns = now_ns;
    } else if (now_ns - stream.untold_since_ns > (stream.is_answered ? answered_ns : kUntoldNs)) {
      send_acknowledgement(*link);
    }
  }
}

}  // namespace allrail::transport
