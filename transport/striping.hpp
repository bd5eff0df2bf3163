// Striping: where a put is cut, how fast rails are, how much they may have in flight, and which of
// them takes the next chunk. Pure and small: no rail and no clock is touched here.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace allrail::transport {

/// Where one put is cut. The first `count - 1` chunks have `chunk_bytes` bytes, the last the rest.
struct Cut {
  std::uint64_t put_bytes = 0;
  std::uint32_t chunk_bytes = 0;
  std::uint32_t count = 0;

  std::uint64_t offset(std::uint32_t index) const {
    return static_cast<std::uint64_t>(index) * chunk_bytes;
  }
  std::uint32_t bytes(std::uint32_t index) const {
    return index + 1 < count ? chunk_bytes
                             : static_cast<std::uint32_t>(put_bytes - offset(count - 1));
  }
};

Cut cut_put(std::uint64_t put_bytes, std::uint32_t chunk_bytes);

/// Delivered bytes per second while busy: every chunk brings one sample, the bytes delivered since
/// it was posted over the time this took, or its own bytes over its own time where that is more
/// (chunks whose acknowledgement is held back lie before it), and the upper quartile of the last
/// samples counts. Most samples err on the low side, since there was too little to send; a few err
/// far on the high side, since a shaper had saved up credit, and the highest one (as in BBR) would
/// send everything there.
class RateMeter {
 public:
  static constexpr int kSamples = 16;

  /// What the meter showed when a chunk was posted.
  struct Stamp {
    std::int64_t time_ns = 0;
    std::uint64_t delivered_bytes = 0;
  };

  Stamp posted(std::int64_t now_ns);
  /// `bulk`: kMeasuredChunkBytes or more, and acknowledged at once. Others measure latency, not
  /// rate; they only count where they are better than what is known, and never first: a rail that
  /// has carried nothing else would look so slow that no large put ever took it.
  void completed(std::int64_t now_ns, std::int64_t posted_ns, const Stamp& stamp,
                 std::uint32_t bytes, bool bulk);
  /// A posted chunk was lost with its link.
  void abandoned() { --in_flight_; }

  /// What should have been delivered since the last delivery.
  std::uint64_t expected_bytes(std::int64_t now_ns) const;
  /// 0: not known yet.
  double bytes_per_second() const { return rate_; }

 private:
  std::array<double, kSamples> samples_{};
  std::int64_t count_ = 0;
  int in_flight_ = 0;
  double rate_ = 0;
  std::int64_t last_delivery_ns_ = 0;
  std::uint64_t delivered_bytes_ = 0;
};

/// How long a byte takes on the wire: what a chunk took beyond the round trip of an empty rail,
/// over its bytes. The median of the last ones, so that neither a descheduled peer nor a shaper's
/// saved credit decides.
class WireTimeMeter {
 public:
  void completed(std::int64_t own_ns, std::int64_t round_trip_ns, std::uint32_t bytes);
  /// 0: not known yet.
  double ns_per_byte() const { return ns_per_byte_; }

 private:
  static constexpr int kSamples = 16;
  std::array<double, kSamples> samples_{};
  std::int64_t count_ = 0;
  double ns_per_byte_ = 0;
};

/// Whether a rail is so fast that the processors are what its puts wait for, and not a wire: chunks
/// leave this host at more than 150 MB/s, all of the last ones that were watched but one, whose
/// sender may have lost its core. What a rail carries in a time does not tell, since where
/// processes wait for a core it is no more than behind a shaper; and behind a shaper the median
/// does not, since what it has saved up goes at once.
class DepartureMeter {
 public:
  static constexpr int kSamples = 32;

  /// Slower than a fast rail.
  static bool is_slow(std::int64_t took_ns, std::uint32_t bytes);
  /// A chunk of medium or larger size left `took_ns` after it was posted, or later where that is
  /// slow already.
  void left(std::int64_t took_ns, std::uint32_t bytes);
  /// Whether there are samples enough.
  bool is_settled() const { return count_ >= kSamples; }
  bool is_fast() const { return is_settled() && slow_ <= kMostSlow; }
  /// The median.
  double ns_per_byte() const { return ns_per_byte_; }

 private:
  static constexpr int kMostSlow = 1;
  std::array<double, kSamples> samples_{};
  std::int64_t count_ = 0;
  int slow_ = 0;
  double ns_per_byte_ = 0;
};

/// The least time from posting a chunk to its completion. Chunks that were posted on a busy rail
/// wait in its queue, so they can only lower the value; those posted on an idle rail renew it.
class RoundTripMeter {
 public:
  void completed(std::int64_t round_trip_ns, bool was_idle);
  std::int64_t round_trip_ns() const { return round_trip_ns_; }

 private:
  static constexpr int kSamples = 8;
  std::array<std::int64_t, kSamples> samples_{};
  std::int64_t count_ = 0;
  std::int64_t round_trip_ns_ = 0;
};

/// Bytes a link may have in flight: twice rate x round trip, so that the pipe stays full while
/// completions travel back; at least two chunks and kMinWindowBytes, which covers a peer that is
/// not scheduled for a moment; at most 4 MiB, unless two chunks are more. A rail that sends again
/// what is not acknowledged after `resend_after_ns` is an adapter, which goes on with what it has
/// while this process is not scheduled: at least kAdapterWindowBytes, but no more than it delivers
/// in half of that time, nor less than kLeastWindowBytes: acknowledgements may have to queue behind
/// as much of the peer's.
inline constexpr std::uint64_t kMinWindowBytes = 256U << 10;
inline constexpr std::uint64_t kMaxWindowBytes = 4U << 20;
inline constexpr std::uint64_t kAdapterWindowBytes = 1U << 20;
inline constexpr std::uint64_t kLeastWindowBytes = 64U << 10;
/// At least so much where chunks leave the host at once: nothing queues on the way, and who has
/// room for so much need not be told of each of a few puts.
inline constexpr std::uint64_t kFastWindowBytes = 768U << 10;
std::uint64_t link_window_bytes(std::uint32_t chunk_bytes, double bytes_per_second,
                                std::int64_t round_trip_ns, std::int64_t resend_after_ns);

/// Rates that differ by less than a fifth: that much is noise.
bool rates_are_alike(double slowest_bytes_per_second, double fastest_bytes_per_second);

/// One rail in the eyes of choose_rail().
struct RailChoice {
  bool usable = false;                // there is a link to the peer that carries data
  bool has_room = false;              // and it takes a chunk now
  double bytes_per_second = 0;        // measured, or its weight in the shares: ratios count
  std::uint64_t in_flight_bytes = 0;  // over all peers
  double ahead_bytes = 0;             // carried beyond its share, of late; negative: behind
};

/// No more than this is remembered of what a rail has carried beyond its share: it evens out what
/// chance and the order of looking make uneven, and does not keep a rail busy that is slower.
inline constexpr double kMaxAheadBytes = 64 << 10;
/// `bytes` went to `rail`: it is ahead by what is not its share of them, and the others are behind
/// by theirs.
void add_ahead(std::span<RailChoice> rails, int rail, std::uint64_t bytes);

/// The rail that takes the next chunk, or -1 to wait. `waiting_bytes` is everything not yet sent up
/// to the end of this put, this chunk included. A rail takes the chunk only if it finishes it
/// before the other rails would have finished all of that without it. A rail that is ahead of its
/// share counts as that much busier: a difference that stays costs more than one put.
int choose_rail(std::span<const RailChoice> rails, std::uint32_t chunk_bytes,
                std::uint64_t waiting_bytes);

}  // namespace allrail::transport
