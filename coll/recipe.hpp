// How the schedules of a collective are made.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "coll/allgather/allgather.hpp"
#include "coll/plan.hpp"

namespace allrail::coll {

/// Made once per plan; keeps the sizes of the call.
class Recipe {
 public:
  Recipe() = default;
  virtual ~Recipe() = default;
  Recipe(const Recipe&) = delete;
  Recipe& operator=(const Recipe&) = delete;

  /// The row of the collective's algorithm table.
  virtual std::uint32_t algorithm() const = 0;
  /// For bytes [begin, begin + bytes) of every block.
  virtual schedule::Schedule make(std::uint64_t begin, std::uint64_t bytes) const = 0;
  /// What a slice of so many bytes of every block takes on the largest node: the same on all ranks.
  virtual std::uint64_t slot_bytes(std::uint64_t slice_bytes) const = 0;
  /// Whether the slices that begin at these bytes of every block have the same schedule.
  virtual bool are_alike(std::uint64_t begin, std::uint64_t other, std::uint64_t bytes) const = 0;

  // Of collectives that have more ways for the data than through slots.
  virtual std::uint32_t way() const { return zero_copy_ ? 1 : 0; }
  /// See CallPlan.
  virtual bool zero_copy() const { return zero_copy_; }
  virtual bool copies_because_of_limit() const { return copies_because_of_limit_; }
  virtual std::uint64_t most_slice_bytes() const;

 protected:
  /// Blocks go straight between user buffers, unless that would register more than may be.
  void go_straight(const PlanRequest& request, const PlanLimits& limits);

 private:
  bool zero_copy_ = false;
  bool copies_because_of_limit_ = false;
};

/// Throws Error{InvalidArgument} for an unknown algorithm. `roster` outlives it.
std::unique_ptr<const Recipe> make_recipe(const PlanRequest& request, const Roster& roster,
                                          const PlanLimits& limits);

/// Bytes [begin, begin + bytes) of blocks, of all or of some, which go by a recipe of their own.
struct CallPart {
  std::unique_ptr<const Recipe> recipe;
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
};
/// All of a call, in the order in which its parts go. At least one; the first begins at 0. Throws
/// as make_recipe().
std::vector<CallPart> make_parts(const PlanRequest& request, const Roster& roster,
                                 const PlanLimits& limits);
/// Of an allgather by a ring and chains. Empty where its blocks are not cut.
std::vector<CallPart> make_ring_chain_parts(const PlanRequest& request, const Roster& roster,
                                            const PlanLimits& limits);
std::unique_ptr<const Recipe> make_allgather_recipe(const PlanRequest& request,
                                                    const allgather::Algorithm& algorithm,
                                                    const Roster& roster, const PlanLimits& limits);

/// A zero-copy put is one put of the fabric, which has at most 1,024 chunks of up to 1 MiB.
inline constexpr std::uint64_t kLargestPutBytes = std::uint64_t{512} << 20;

/// What a zero-copy call of this size may register with each rail: its result, unless that is a
/// Buffer, and one block; of an alltoall both buffers.
std::uint64_t registered_bytes(const PlanRequest& request);

/// What bytes [begin, begin + bytes) have of a block.
inline std::uint64_t slice_of(std::uint64_t block, std::uint64_t begin, std::uint64_t bytes) {
  return block > begin ? std::min(block - begin, bytes) : 0;
}

/// The collectives that have algorithms to choose from.
inline constexpr Operation kCollectives[] = {Operation::Allgather, Operation::Gather,
                                             Operation::Scatter, Operation::Broadcast,
                                             Operation::Alltoall};
/// The names in the collective's table, in its order.
std::vector<std::string_view> algorithm_names(Operation operation);

/// "gather": as algorithms, settings and messages name the collective.
const char* collective_name(Operation operation) noexcept;
/// The other way round; an allgather for an unknown name.
Operation operation_of(std::string_view collective) noexcept;
/// Whether several ranks of a node may talk for it. Of the other collectives one does.
bool has_lanes(Operation operation) noexcept;

/// The name in that row of the collective's table; a row that another rank named may not exist.
std::string_view algorithm_name(Operation operation, std::uint32_t row) noexcept;

}  // namespace allrail::coll
