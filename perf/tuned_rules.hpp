// From measured times to the rules of a tuning file: no measuring, no file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lib/simulation.hpp"

namespace allrail::perf {

/// An algorithm with a number of ports, and what it took at every size.
struct Candidate {
  std::string algorithm;
  int ports = 1;
  std::vector<double> time_us;  // by size; infinite where it was not measured
};

/// The candidate that is taken for the sizes [first, last].
struct TunedRange {
  std::size_t candidate = 0;
  std::size_t first = 0;
  std::size_t last = 0;
};

/// As few ranges as possible, from the smallest size to the largest, such that at every size the
/// candidate of its range takes at most (1 + margin) of the fastest one's time there. So a
/// difference below the margin never makes a range of its own. Among those that last equally long
/// the one that is fastest on the whole is taken. Times
/// are above 0, and at every size one of them is finite.
std::vector<TunedRange> choose_ranges(std::span<const Candidate> candidates, double margin);

/// Bytes from `least` to `most`, both included.
struct ByteRange {
  std::uint64_t least = 0;
  std::uint64_t most = 0;
};
/// What a range of sizes stands for: half way to its neighbours on a logarithmic scale, and no
/// further than what was measured; but a smallest size of 64 bytes or less stands for everything
/// below, where messages cost what empty ones cost. `sizes` are ascending, each once.
ByteRange bytes_of(const TunedRange& range, std::span<const std::uint64_t> sizes);

/// What a rule is for.
struct Layout {
  int ranks = 1;
  int nodes = 1;
  int smallest_node = 1;
  int largest_node = 1;
  int rails = 1;
};

/// The rules of one collective.
struct TunedCollective {
  std::string name;
  std::vector<std::uint64_t> sizes;
  std::vector<Candidate> candidates;
  std::vector<TunedRange> ranges;
};

/// The text of a tuning file, a rule to a line, with the times as comments. `leaders`, if any, are
/// those that allgathers and alltoalls were measured with; `model`, if any, is put behind the
/// rules.
std::string tuning_text(std::span<const TunedCollective> collectives, const Layout& layout,
                        std::optional<int> leaders,
                        const std::optional<diagnostics::CostModel>& model,
                        const std::string& comment);

}  // namespace allrail::perf
