// What a rail or the fabric keeps of its peers: as much as there are peers in use, however many
// ranks the job has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace allrail::transport {

/// Entries by rank, in the order in which they were made. An entry never moves and is never
/// removed. find() is a multiplication and, nearly always, one look; only make() allocates.
template <class Entry>
class PeerTable {
 public:
  Entry* find(int rank) const noexcept {
    if (rank < 0 || places_.empty()) return nullptr;
    for (std::size_t at = home(rank);; at = (at + 1) & (places_.size() - 1)) {
      if (places_[at].rank == rank) return entries_[places_[at].entry].get();
      if (places_[at].rank < 0) return nullptr;
    }
  }

  /// The entry of a rank, which is at least 0; made where there is none.
  Entry& make(int rank) {
    if (Entry* known = find(rank)) return *known;
    // At most half full, so that looks are few.
    if (places_.size() < 2 * (entries_.size() + 1)) grow();
    entries_.push_back(std::make_unique<Entry>());
    place(rank, static_cast<std::uint32_t>(entries_.size() - 1));
    return *entries_.back();
  }

  std::size_t size() const noexcept { return entries_.size(); }
  Entry& at(std::size_t position) const noexcept { return *entries_[position]; }

 private:
  struct Place {
    std::int32_t rank = -1;
    std::uint32_t entry = 0;
  };

  std::size_t home(int rank) const noexcept {
    // The golden ratio spreads ranks at equal distances, as leaders are, over the whole table.
    constexpr std::uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;
    return (static_cast<std::uint64_t>(rank) * kGoldenRatio >> 32U) & (places_.size() - 1);
  }
  void place(int rank, std::uint32_t entry) noexcept {
    std::size_t at = home(rank);
    while (places_[at].rank >= 0) at = (at + 1) & (places_.size() - 1);
    places_[at] = {rank, entry};
  }
  void grow() {
    const std::vector<Place> old = std::exchange(
        places_, std::vector<Place>(places_.empty() ? kFirstPlaces : 2 * places_.size()));
    for (const Place& one : old) {
      if (one.rank >= 0) place(one.rank, one.entry);
    }
  }

  static constexpr std::size_t kFirstPlaces = 8;  // a power of two, as all sizes of the table
  std::vector<Place> places_;
  std::vector<std::unique_ptr<Entry>> entries_;
};

}  // namespace allrail::transport
