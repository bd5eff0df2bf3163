#include "coll/imagined_call.hpp"

#include <algorithm>
#include <utility>

#include "coll/allgather/allgather.hpp"
#include "coll/alltoall/alltoall.hpp"
#include "coll/broadcast/broadcast.hpp"
#include "coll/gather/gather.hpp"
#include "coll/recipe.hpp"
#include "coll/scatter/scatter.hpp"
#include "coll/selection.hpp"
#include "coll/with_ready_tokens.hpp"
#include "lib/base/error.hpp"

namespace allrail::coll {
namespace {

template <class Algorithm>
const Algorithm& known(const Algorithm* found, const ImaginedCall& call) {
  if (found == nullptr) {
    base::fail(Code::InvalidArgument, "there is no {} algorithm '{}'",
               collective_name(call.operation), call.algorithm);
  }
  return *found;
}

/// The row of the table, whatever its type.
template <class Visit>
auto with_algorithm(const ImaginedCall& call, const Visit& visit) {
  switch (call.operation) {
    case Operation::Gather:
      return visit(known(gather::find_algorithm(call.algorithm), call));
    case Operation::Scatter:
      return visit(known(scatter::find_algorithm(call.algorithm), call));
    case Operation::Broadcast:
      return visit(known(broadcast::find_algorithm(call.algorithm), call));
    case Operation::Alltoall:
      return visit(known(alltoall::find_algorithm(call.algorithm), call));
    default:
      return visit(known(allgather::find_algorithm(call.algorithm), call));
  }
}

schedule::PairShape pairs_of(const ImaginedCall& call, const schedule::Shape& shape) {
  schedule::PairShape pairs;
  pairs.map = shape.map;
  pairs.leaders = call.leaders;
  pairs.ports = call.ports;
  pairs.uniform_bytes = call.bytes;
  pairs.send_offsets = pairs.receive_offsets = shape.receive_offsets;
  pairs.without_places = true;
  pairs.stands_for_several = shape.stands_for_several;
  return pairs;
}

schedule::Schedule make_alltoall(const ImaginedCall& call, const schedule::Shape& shape, int rank,
                                 bool is_straight) {
  const schedule::PairShape pairs = pairs_of(call, shape);
  const auto& algorithm = known(alltoall::find_algorithm(call.algorithm), call);
  if (!is_straight) return alltoall::make_schedule(algorithm, pairs, rank);
  return with_ready_tokens(alltoall::make_zero_copy_schedule(algorithm, pairs, rank), pairs.map,
                           rank, TokensOf::Ranks);
}

const schedule::RootedAlgorithm& rooted(const ImaginedCall& call) {
  const bool gathers = call.operation == Operation::Gather;
  return known(
      gathers ? gather::find_algorithm(call.algorithm) : scatter::find_algorithm(call.algorithm),
      call);
}

schedule::Schedule make_rooted(const ImaginedCall& call, const schedule::Shape& shape, int rank,
                               bool is_straight) {
  const bool gathers = call.operation == Operation::Gather;
  const auto& algorithm = rooted(call);
  if (!is_straight) {
    return gathers ? gather::make_schedule(algorithm, shape, call.root, rank)
                   : scatter::make_schedule(algorithm, shape, call.root, rank);
  }
  const auto direction = gathers ? schedule::Direction::ToRoot : schedule::Direction::FromRoot;
  return with_ready_tokens(
      schedule::rooted_zero_copy_schedule(algorithm, shape, call.root, rank, direction), shape.map,
      rank, TokensOf::Ranks, TokensTo::All);
}

}  // namespace

ImaginedSchedules::ImaginedSchedules(ImaginedCall call, schedule::NodeMap map,
                                     std::shared_ptr<const schedule::Switches> switches)
    : call_(std::move(call)),
      shape_(schedule::uniform_shape(std::move(map), call_.bytes, call_.ports, call_.leaders)) {
  shape_.segment_bytes = call_.segment_bytes;
  shape_.switches = std::move(switches);
  if (call_.root < 0 || call_.root >= shape_.ranks()) {
    base::fail(Code::InvalidArgument, "root {} is not one of {} ranks", call_.root, shape_.ranks());
  }
  is_over_nodes_ = with_algorithm(
      call_, [](const auto& algorithm) { return algorithm.level != schedule::Level::Flat; });
  if (call_.operation == Operation::Allgather) {
    is_straight_ = allgather::find_algorithm(call_.algorithm)->zero_copy &&
                   shape_.map.largest_node == 1 && shape_.map.nodes() > 1 &&
                   call_.bytes >= kZeroCopyThresholdBytes;
  } else if (call_.operation == Operation::Alltoall) {
    is_straight_ = alltoall::find_algorithm(call_.algorithm)->zero_copy &&
                   alltoall::goes_straight(pairs_of(call_, shape_), kAlltoallThresholdBytes);
  } else if (call_.operation == Operation::Gather || call_.operation == Operation::Scatter) {
    is_straight_ = schedule::rooted_goes_straight(rooted(call_), shape_, kRootedThresholdBytes);
  }
}

int ImaginedSchedules::root() const {
  const bool has_root = call_.operation == Operation::Gather ||
                        call_.operation == Operation::Scatter ||
                        call_.operation == Operation::Broadcast;
  return has_root ? call_.root : -1;
}

schedule::Schedule ImaginedSchedules::of(int rank) const {
  switch (call_.operation) {
    case Operation::Gather:
    case Operation::Scatter:
      return make_rooted(call_, shape_, rank, is_straight_);
    case Operation::Broadcast:
      return broadcast::make_schedule(*broadcast::find_algorithm(call_.algorithm), shape_,
                                      call_.root, rank);
    case Operation::Alltoall:
      return make_alltoall(call_, shape_, rank, is_straight_);
    default:
      break;
  }
  const auto& algorithm = *allgather::find_algorithm(call_.algorithm);
  if (!is_straight_) return allgather::make_schedule(algorithm, shape_, rank);
  return with_ready_tokens(
      allgather::make_zero_copy_schedule(algorithm, shape_, rank, kLargestPutBytes), shape_.map,
      rank);
}

namespace {

/// Puts the leaders that are asked for in the place of the node's ranks, with what each of the
/// largest group does for its leader; returns how many ranks that group has.
std::uint64_t divide_among_leaders(LeadersOnly& reduced, int ranks_per_node) {
  const int leaders =
      std::clamp(reduced.call.leaders, 1, std::min(ranks_per_node, schedule::kMostLanes));
  const int group = (ranks_per_node + leaders - 1) / leaders;
  schedule::NodePhase& phase = reduced.phase;
  phase.give_share = 1.0 / group;
  phase.give_ranks = phase.keep_ranks = phase.take_ranks = group;
  phase.flags_before_puts = group - 1;
  reduced.ranks_per_node = leaders;
  return static_cast<std::uint64_t>(group);
}

}  // namespace

LeadersOnly leaders_only(const ImaginedCall& call, int ranks_per_node) {
  const auto size = static_cast<std::uint64_t>(ranks_per_node);
  LeadersOnly reduced{call, 1, {}};
  const double share = 1.0 / ranks_per_node;
  schedule::NodePhase& phase = reduced.phase;
  const bool root_talks = call.root % ranks_per_node == 0;
  phase.flags_at_end = ranks_per_node > 1 ? 1 : 0;
  switch (call.operation) {
    case Operation::Gather:
      phase.give_share = share;
      phase.give_ranks = ranks_per_node;
      phase.flags_before_puts = ranks_per_node - 1;
      phase.flags_at_end = root_talks ? 0 : 1;
      reduced.call.bytes = call.bytes * size;
      break;
    case Operation::Scatter:
      phase.take_share = share;
      phase.take_ranks = ranks_per_node;
      phase.flags_before_puts = root_talks ? 0 : 1;
      reduced.call.bytes = call.bytes * size;
      break;
    case Operation::Broadcast:
      phase.take_ranks = ranks_per_node;
      phase.flags_before_puts = root_talks ? 0 : 1;
      break;
    case Operation::Alltoall: {
      const std::uint64_t group = divide_among_leaders(reduced, ranks_per_node);
      // What a rank has for another node is all of that node's ranks'.
      reduced.call.bytes =
          call.bytes * group * size / static_cast<std::uint64_t>(reduced.ranks_per_node);
      phase.take_share = phase.give_share;
      // By the slot, except for what a rank has for itself.
      phase.keep_share = 2 * phase.give_share;
      break;
    }
    default:
      reduced.call.bytes = call.bytes * divide_among_leaders(reduced, ranks_per_node);
      break;
  }
  reduced.call.root = call.root / ranks_per_node * reduced.ranks_per_node;
  return reduced;
}

}  // namespace allrail::coll
