#include "transport/striping.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include "transport/fabric.hpp"

namespace allrail::transport {

namespace {

constexpr std::uint64_t kChunkUnit = 4096;
constexpr std::uint64_t kMinChunkBytes = 8ULL * 1024;
constexpr std::uint64_t kUsualMaxChunkBytes = 256ULL * 1024;
// Chunks per rail and put: enough that the last chunk is a small part of the whole.
constexpr std::uint64_t kChunksPerRail = 8;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

constexpr std::uint64_t kEvenUnit = 64;
// A very slow rail gets short chunks: this long is how late the last one can be while the others
// wait. On all others shares see to that, and a chunk costs more than it saves.
constexpr double kChunkSeconds = 20e-3;
// A fast one gets long chunks: each costs system calls at both ends, which take some microseconds.
// Where the rail is so fast that the processors are what it waits for, these calls are all that can
// be saved; on a slow one they cost nothing, and shorter chunks fit better, as they do where one
// rail is to take less than another.
constexpr double kLeastSeconds = 100e-6;
constexpr double kFastBytesPerSecond = 100e6;
constexpr double kMostFastShare = 4;
// A put that the slowest rail carries in less than that stays whole: for so little, a second frame,
// look and wake-up cost more than a second rail brings. What is measured has half of such a cost in
// it, which is why this is more than a rail's gain has to be.
constexpr double kMostWholeNs = 150e3;
constexpr std::uint64_t kMostWholeBytes = 128ULL * 1024;
// Where rails are alike, puts that take turns fill them as evenly as chunks would: 16 KiB of the
// user and what is put in front of them stay whole. A put that is alone takes longer by that, for
// which rails may be too slow.
constexpr std::uint64_t kWholeOnAlikeBytes = 20ULL * 1024;
constexpr double kMostWholeOnAlikeSeconds = 300e-6;
// The round trip that is taken off what a chunk took. On a rail that is never empty the least one
// that was seen is mostly waiting for other bytes, which is what is to be measured.
constexpr std::int64_t kMostRoundTripNs = 40'000;
constexpr double kFastRailNsPerByte = 1e9 / 150e6;
// Rates that differ by less are alike: that much is noise, and rails that are alike get equal
// parts.
constexpr double kAlikeShare = 0.8;

/// Of the first `count` samples.
template <class Samples>
double median(Samples samples, std::int64_t count) {
  const auto used = std::min(count, static_cast<std::int64_t>(samples.size()));
  std::sort(samples.begin(), samples.begin() + used);
  return samples[static_cast<std::size_t>(used / 2)];
}

double upper_quartile(std::array<double, RateMeter::kSamples> samples, int count) {
  std::sort(samples.begin(), samples.begin() + count);
  return samples[static_cast<std::size_t>((count - 1) * 3 / 4)];
}

bool stays_whole(std::uint64_t put_bytes, const RailSpeeds& speeds) {
  const auto bytes = static_cast<double>(put_bytes);
  if (speeds.are_alike && put_bytes <= kWholeOnAlikeBytes &&
      bytes <= speeds.slowest_bytes_per_second * kMostWholeOnAlikeSeconds) {
    return true;
  }
  return put_bytes <= kMostWholeBytes && speeds.wire_ns_per_byte > 0 &&
         bytes * speeds.wire_ns_per_byte <= kMostWholeNs;
}

}  // namespace

std::uint32_t chunk_bytes_of(std::uint64_t put_bytes, int rails, const FabricOptions& options,
                             std::uint32_t max_chunk_bytes, const RailSpeeds& speeds) {
  const std::uint64_t cap = std::max<std::uint64_t>(max_chunk_bytes, 1);
  if (put_bytes <= options.stripe_threshold_bytes && put_bytes <= cap)
    return static_cast<std::uint32_t>(std::max<std::uint64_t>(put_bytes, 1));
  std::uint64_t chunk = options.chunk_bytes;
  if (chunk == 0) {
    if (options.stripe_threshold_bytes > 0 && put_bytes <= cap && stays_whole(put_bytes, speeds)) {
      return static_cast<std::uint32_t>(put_bytes);
    }
    const auto share =
        put_bytes / (static_cast<std::uint64_t>(std::max(rails, 1)) * kChunksPerRail);
    chunk = std::clamp(round_up(share, kEvenUnit), kMinChunkBytes, kUsualMaxChunkBytes);
    if (speeds.slowest_bytes_per_second > 0) {
      const auto in_time =
          static_cast<std::uint64_t>(speeds.slowest_bytes_per_second * kChunkSeconds);
      chunk = std::min(chunk, std::max(round_up(in_time, kChunkUnit), kMinChunkBytes));
      const double most_share = speeds.are_alike ? kMostFastShare : 1.0;
      const double fast_share =
          std::clamp(speeds.slowest_bytes_per_second / kFastBytesPerSecond, 1.0, most_share);
      const auto worth_it =
          static_cast<std::uint64_t>(speeds.slowest_bytes_per_second * kLeastSeconds * fast_share);
      chunk = std::max(chunk, std::min(round_up(worth_it, kEvenUnit), kUsualMaxChunkBytes));
    }
  }
  // The receiver has one bit per chunk, kMaxChunksPerPut of them: very long puts get long chunks.
  const std::uint64_t least = (put_bytes + kMaxChunksPerPut - 1) / kMaxChunksPerPut;
  if (chunk < least) chunk = round_up(least, kChunkUnit);
  chunk = std::clamp<std::uint64_t>(chunk, 1, cap);
  if (options.chunk_bytes != 0) return static_cast<std::uint32_t>(chunk);
  // Even shares, so that no rail is kept waiting for a last chunk that is a few bytes long, and as
  // many for every rail: of seven chunks one of two equal rails takes four.
  const auto share_count = static_cast<std::uint64_t>(std::max(rails, 1));
  const std::uint64_t turn_bytes = std::max<std::uint64_t>(chunk * share_count, 1);
  const std::uint64_t turns = std::max<std::uint64_t>((put_bytes + turn_bytes / 2) / turn_bytes, 1);
  const std::uint64_t count = turns * share_count;
  const std::uint64_t even = round_up((put_bytes + count - 1) / count, kEvenUnit);
  return static_cast<std::uint32_t>(std::min(std::max(even, least), cap));
}

Cut cut_put(std::uint64_t put_bytes, std::uint32_t chunk_bytes) {
  Cut cut;
  cut.put_bytes = put_bytes;
  cut.chunk_bytes = chunk_bytes;
  cut.count =
      put_bytes == 0 ? 1 : static_cast<std::uint32_t>((put_bytes + chunk_bytes - 1) / chunk_bytes);
  return cut;
}

bool rates_are_alike(double slowest_bytes_per_second, double fastest_bytes_per_second) {
  return slowest_bytes_per_second > fastest_bytes_per_second * kAlikeShare;
}

RateMeter::Stamp RateMeter::posted(std::int64_t now_ns) {
  if (in_flight_ == 0) last_delivery_ns_ = now_ns;
  ++in_flight_;
  return {last_delivery_ns_, delivered_bytes_};
}

void RateMeter::completed(std::int64_t now_ns, std::int64_t posted_ns, const Stamp& stamp,
                          std::uint32_t bytes, bool bulk) {
  --in_flight_;
  delivered_bytes_ += bytes;
  last_delivery_ns_ = now_ns;
  const std::int64_t interval_ns = std::max<std::int64_t>(now_ns - stamp.time_ns, 1);
  const std::int64_t own_ns = std::max<std::int64_t>(now_ns - posted_ns, 1);
  const double sample = std::max(static_cast<double>(delivered_bytes_ - stamp.delivered_bytes) *
                                     1e9 / static_cast<double>(interval_ns),
                                 static_cast<double>(bytes) * 1e9 / static_cast<double>(own_ns));
  if (!bulk && (count_ == 0 || sample <= rate_)) return;
  samples_[static_cast<std::size_t>(count_ % kSamples)] = sample;
  ++count_;
  rate_ = upper_quartile(samples_, static_cast<int>(std::min<std::int64_t>(count_, kSamples)));
}

std::uint64_t RateMeter::expected_bytes(std::int64_t now_ns) const {
  const auto idle_ns = static_cast<double>(std::max<std::int64_t>(now_ns - last_delivery_ns_, 0));
  return static_cast<std::uint64_t>(std::min(rate_ * idle_ns / 1e9, 1e15));
}

void WireTimeMeter::completed(std::int64_t own_ns, std::int64_t round_trip_ns,
                              std::uint32_t bytes) {
  const std::int64_t least_ns = std::max<std::int64_t>(own_ns / 8, 1);
  const std::int64_t wire_ns =
      std::max(own_ns - std::min(round_trip_ns, kMostRoundTripNs), least_ns);
  samples_[static_cast<std::size_t>(count_ % kSamples)] =
      static_cast<double>(wire_ns) / static_cast<double>(bytes);
  ++count_;
  ns_per_byte_ = median(samples_, count_);
}

bool DepartureMeter::is_slow(std::int64_t took_ns, std::uint32_t bytes) {
  return static_cast<double>(took_ns) > kFastRailNsPerByte * bytes;
}

void DepartureMeter::left(std::int64_t took_ns, std::uint32_t bytes) {
  samples_[static_cast<std::size_t>(count_ % kSamples)] =
      static_cast<double>(took_ns) / static_cast<double>(bytes);
  ++count_;
  ns_per_byte_ = median(samples_, count_);
  // Samples that are not there yet are 0.
  slow_ = static_cast<int>(
      std::ranges::count_if(samples_, [](double sample) { return sample > kFastRailNsPerByte; }));
}

void RoundTripMeter::completed(std::int64_t round_trip_ns, bool was_idle) {
  round_trip_ns = std::max<std::int64_t>(round_trip_ns, 1);
  if (was_idle) {
    samples_[static_cast<std::size_t>(count_ % kSamples)] = round_trip_ns;
    ++count_;
    const auto used = std::min<std::int64_t>(count_, kSamples);
    round_trip_ns_ = *std::min_element(samples_.begin(), samples_.begin() + used);
  } else if (round_trip_ns_ == 0 || round_trip_ns < round_trip_ns_) {
    round_trip_ns_ = round_trip_ns;
  }
}

std::uint64_t link_window_bytes(std::uint32_t chunk_bytes, double bytes_per_second,
                                std::int64_t round_trip_ns, std::int64_t resend_after_ns) {
  const std::uint64_t least =
      std::max<std::uint64_t>(2 * static_cast<std::uint64_t>(chunk_bytes), kMinWindowBytes);
  const double pipe = 2.0 * bytes_per_second * static_cast<double>(round_trip_ns) / 1e9;
  const auto wanted =
      static_cast<std::uint64_t>(std::clamp(pipe, 0.0, static_cast<double>(kMaxWindowBytes)));
  const std::uint64_t window = std::max(least, wanted);
  if (resend_after_ns == 0) return window;
  const std::uint64_t adapter_window = std::max(window, kAdapterWindowBytes);
  const double in_time = bytes_per_second * static_cast<double>(resend_after_ns) / 1e9 / 2;
  const auto in_time_bytes =
      static_cast<std::uint64_t>(std::min(in_time, static_cast<double>(kMaxWindowBytes)));
  return std::min(adapter_window, std::max(in_time_bytes, kLeastWindowBytes));
}

namespace {

// By rail, and 0 of those that are not usable. A rail that was not measured yet is like the mean of
// the others, and rails that are alike are as fast as the fastest.
std::array<double, kMaxRails> rates_of(std::span<const RailChoice> rails) {
  double sum = 0;
  double highest = 0;
  int known = 0;
  for (const RailChoice& rail : rails) {
    if (!rail.usable || rail.bytes_per_second <= 0) continue;
    sum += rail.bytes_per_second;
    highest = std::max(highest, rail.bytes_per_second);
    ++known;
  }
  std::array<double, kMaxRails> rates{};
  for (std::size_t i = 0; i < rails.size(); ++i) {
    if (!rails[i].usable) continue;
    const double rate = rails[i].bytes_per_second;
    rates[i] = rate > 0 ? rate : known > 0 ? sum / known : 1.0;
    if (highest > 0 && rates_are_alike(rates[i], highest)) rates[i] = highest;
  }
  return rates;
}

}  // namespace

void add_ahead(std::span<RailChoice> rails, int rail, std::uint64_t bytes) {
  const std::array<double, kMaxRails> rates = rates_of(rails);
  const double total_rate = std::accumulate(rates.begin(), rates.end(), 0.0);
  const auto carried = static_cast<double>(bytes);
  for (std::size_t i = 0; i < rails.size(); ++i) {
    if (!rails[i].usable) continue;
    double& ahead_bytes = rails[i].ahead_bytes;
    ahead_bytes -= carried * rates[i] / total_rate;
    if (static_cast<int>(i) == rail) ahead_bytes += carried;
    ahead_bytes = std::clamp(ahead_bytes, -kMaxAheadBytes, kMaxAheadBytes);
  }
}

int choose_rail(std::span<const RailChoice> rails, std::uint32_t chunk_bytes,
                std::uint64_t waiting_bytes) {
  const std::array<double, kMaxRails> rates = rates_of(rails);
  double total_rate = 0;
  double total_in_flight = 0;
  double first_finish = std::numeric_limits<double>::max();
  double best_finish = std::numeric_limits<double>::max();
  double best_rate = 0;
  double best_in_flight = 0;
  int best = -1;
  for (std::size_t i = 0; i < rails.size(); ++i) {
    const RailChoice& rail = rails[i];
    if (!rail.usable) continue;
    const double in_flight = static_cast<double>(rail.in_flight_bytes) + rail.ahead_bytes;
    const double finish = (in_flight + chunk_bytes) / rates[i];
    total_rate += rates[i];
    total_in_flight += in_flight;
    first_finish = std::min(first_finish, finish);
    if (!rail.has_room || finish >= best_finish) continue;
    best = static_cast<int>(i);
    best_finish = finish;
    best_rate = rates[i];
    best_in_flight = in_flight;
  }
  if (best < 0 || best_finish <= first_finish) return best;
  // Another rail would finish this chunk earlier but has no room now. Worth taking it here only if
  // the others have so much left to do that this rail is done with it before them.
  const double others_finish =
      (total_in_flight - best_in_flight + static_cast<double>(waiting_bytes)) /
      (total_rate - best_rate);
  return best_finish < others_finish ? best : -1;
}

}  // namespace allrail::transport
