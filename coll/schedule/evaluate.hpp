#pragma once

#include <cstdint>
#include <vector>

#include "coll/schedule/model.hpp"
#include "coll/schedule/program.hpp"
#include "coll/schedule/shape.hpp"

// When the ranks of a call are done, by discrete events: the rails of a node, the ways up and down
// of a leaf switch and the core of a rank serve what comes to them one after the other, in the
// order of time.
namespace allrail::schedule {

/// Whether the ranks of other cells do what those of cell 0 do, so that one cell stands for all. A
/// cell is a run of ranks, whole nodes, as many in every cell. Rank r + c * cell of cell c does
/// what rank r does, with all ranks that it talks to moved on by c * cell, modulo their number
/// (Shift), or with those bits turned (Exclusive, where both numbers are powers of two).
enum class Symmetry : std::uint8_t { None, Shift, Exclusive };

struct Evaluation {
  double seconds = 0;               // until the last rank has ended
  std::vector<double> finished_s;   // by rank of the cell
  std::uint64_t puts = 0;           // of the cell
  std::uint64_t bytes_by_rail = 0;  // of the cell, what its puts carry over rails
};

/// `programs` are those of ranks 0, 1, ... of the map: of all of them, or of cell 0. Deterministic.
/// Throws std::invalid_argument where ranks would wait forever.
Evaluation evaluate(const NodeMap& map, const std::vector<Program>& programs, const Model& model,
                    Symmetry symmetry = Symmetry::None);

}  // namespace allrail::schedule
