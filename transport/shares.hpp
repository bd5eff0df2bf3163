// How puts that are cut are shared out among the rails. Pure: no rail and no clock is touched here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/rail.hpp"

namespace allrail::transport {

/// One rail's part of a put that was cut.
struct Part {
  bool usable = false;       // it could have taken chunks
  std::uint32_t chunks = 0;  // that it took
  // How long it was busy from the beginning of the put to the end of the last of them. Not how
  // late that was: a rail that gets little waits for its turns and ends with the others.
  std::int64_t took_ns = 0;
  double bytes_per_second = 0;  // measured; 0: not known yet, and nothing is learned from the put
};

/// How much of the puts that are cut each rail takes: by weights, which begin with what was
/// measured and follow from the puts before. A rail that was busy longer than the others gets less
/// of the next put, as long as one chunk less would have made it better. That needs no rates, which
/// are hard to tell where a shaper saves up credit; and as the credit comes into how long parts
/// take, the shares of many puts are as even as single ones cannot be, which are cut into chunks.
class Shares {
 public:
  /// `parts`: by rail.
  void completed(std::span<const Part> parts);
  /// In any unit. 0: not known yet.
  double weight(int rail) const {
    const auto at = static_cast<std::size_t>(rail);
    return weights_[at] * corrections_[at];
  }

 private:
  bool begin(std::span<const Part> parts);
  bool one_chunk_less_is_better(std::span<const Part> parts, std::size_t latest) const;

  std::array<double, kMaxRails> weights_{};
  std::array<double, kMaxRails> corrections_{};  // by the last put alone
  int puts_ = 0;
};

}  // namespace allrail::transport
