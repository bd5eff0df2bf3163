// The algorithm that the cost model of a tuning file takes to be the fastest.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <tuple>

#include "coll/block_header.hpp"
#include "coll/roster.hpp"
#include "coll/selection.hpp"
#include "include/allrail/options.hpp"
#include "lib/simulation.hpp"
#include "lib/tuning_file.hpp"

namespace allrail {

class ModelChoice {
 public:
  /// Of the file's model; null where it has none. `rails` is the number of rails of a rank: where
  /// the model has another one, its last rail repeats. `roster` outlives it.
  static std::unique_ptr<ModelChoice> of(const TuningFile& file, const Options& settings,
                                         const coll::Roster& roster, int rails);

  /// Evaluates the algorithms of the collective with some numbers of ports, or with `ports` where
  /// that is not 0, for the next lower power of two of `bytes`, and remembers what it found. The
  /// same on all ranks that have the same file. None where the model has nothing to say: on a
  /// single node, and of jobs that would take too long to evaluate.
  std::optional<coll::Selection> choose(coll::Operation operation, std::uint64_t bytes, int ports,
                                        int leaders);

 private:
  using Key = std::tuple<coll::Operation, std::uint64_t, int, int>;

  ModelChoice(diagnostics::CostModel model, std::string file, const Options& settings,
              const coll::Roster& roster);
  std::optional<coll::Selection> evaluate(const Key& key) const;

  const diagnostics::CostModel model_;
  const std::string file_;
  const std::uint64_t segment_bytes_;
  const coll::Roster& roster_;
  std::map<Key, std::optional<coll::Selection>> known_;
};

}  // namespace allrail
