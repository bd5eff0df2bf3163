#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

// What pieces of a pipelined chain cost: s pieces of m bytes in all go by n participants in
// (s + n - 2) steps of ts + m/s tau.
namespace allrail::schedule {

/// What the start-up of a step costs, in bytes that its rails could have carried: 64 us at 1
/// Gbit/s, 0.7 us at 100 Gbit/s.
inline constexpr double kStartupBytes = 8 * 1024;

/// A pair can have 256 puts queued, and an exchange has less than 65,536 rounds.
inline constexpr std::uint64_t kMostChainPieces = 64;

/// The steps are fastest for s = sqrt((n - 2) m tau/ts) pieces.
inline std::uint64_t best_chain_pieces(std::uint64_t bytes, int participants) {
  const double hops = std::max(participants - 2, 1);
  const double best = std::sqrt(hops * static_cast<double>(bytes) / kStartupBytes);
  return std::clamp<std::uint64_t>(static_cast<std::uint64_t>(best), 1, kMostChainPieces);
}

/// In bytes that the rails could have carried: what the steps of one participant take with so many
/// pieces, and what the last one waits before its first. Another chain may follow meanwhile.
struct ChainCost {
  double steps = 0;
  double wait = 0;
};
inline ChainCost chain_cost(std::uint64_t bytes, int participants) {
  const auto pieces = static_cast<double>(best_chain_pieces(bytes, participants));
  const double step = kStartupBytes + static_cast<double>(bytes) / pieces;
  return {pieces * step, std::max(participants - 2, 0) * step};
}

}  // namespace allrail::schedule
