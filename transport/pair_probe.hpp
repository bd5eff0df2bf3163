// Which pair of rails is tried now: the connecting end's side of pairing. Pure.
//
// Every rail is given the first partner in the list that nothing better has taken. A pair that does
// not answer goes behind all that have failed less often, so that in the end every pair gets its
// turn; a pair that was up once keeps both its rails for good.
#pragma once

#include <span>
#include <vector>

#include "transport/rail_pairs.hpp"

namespace allrail::transport {

class PairProbe {
 public:
  PairProbe() = default;
  /// `pairs` as pair_rails() lists them.
  explicit PairProbe(std::span<const RailPair> pairs);

  /// The pairs to try now; no rail is in two of them.
  std::vector<RailPair> assigned() const;
  /// The other end is there, but not ready for a link yet: nothing else is tried for these rails.
  void answered(const RailPair& pair);
  /// An attempt to connect failed.
  void failed(const RailPair& pair);
  void went_up(const RailPair& pair);
  /// Every pair has failed at least once, and none has answered since.
  bool none_answers() const;

 private:
  enum class Stage { WasUp, Answered, Open };  // in the order of their claims
  struct Candidate {
    RailPair pair;
    Stage stage = Stage::Open;
    int failures = 0;
  };
  Candidate* find(const RailPair& pair);

  std::vector<Candidate> candidates_;
};

}  // namespace allrail::transport
