#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "coll/schedule/lower.hpp"
#include "coll/schedule/regions.hpp"
#include "coll/schedule/step_list.hpp"

// Every leader receives everything (Kandalla 2009): the participants of the exchange are all
// leaders of all nodes, and each has an area of its own in the slot of its node with a region for
// every group of the job. A rank copies from the area of its leader.
//
// A group is gathered into the region of its leader, by copies of its ranks or, as in the paper's
// point-to-point schemes, by an exchange among them: then everybody has an area with the blocks of
// the group, each behind a header, and that of the leader is the payload of its region.
//
// Flags mean what they mean in lower_over_nodes.cpp; there is no stage 1 where a group exchanges.
namespace allrail::schedule {
namespace {

/// The leaders of the shape, all different on a node: one rank cannot exchange with itself.
Shape with_distinct_leaders(Shape shape) {
  const int lanes = std::min(shape.lanes(), shape.map.smallest_node);
  bool distinct = lanes == shape.lanes();
  for (int node = 0; distinct && node < shape.map.nodes(); ++node) {
    std::set<int> leaders;
    for (int lane = 0; lane < lanes; ++lane) {
      // A leader is in the group that it leads, since its region is where the group gathers.
      const int leader = shape.leader(node, lane);
      distinct = distinct && leaders.insert(leader).second &&
                 shape.lane_of(shape.map.ranks_of[node][leader]) == lane;
    }
  }
  shape.leaders = lanes;
  if (!distinct) shape.grouping = nullptr;
  return shape;
}

std::vector<std::uint64_t> block_bytes(const Shape& shape, std::span<const int> ranks) {
  std::vector<std::uint64_t> bytes;
  for (const int rank : ranks) bytes.push_back(shape.bytes[rank]);
  return bytes;
}

/// Where everything lies in the slot of a node.
class AreaMap {
 public:
  AreaMap(const Shape& shape, const GroupTable& groups, bool exchanges_in_group)
      : shape_(shape), groups_(groups), exchanges_in_group_(exchanges_in_group) {
    std::vector<std::uint64_t> region_bytes;
    for (int node = 0; node < shape.map.nodes(); ++node) {
      for (int lane = 0; lane < shape.lanes(); ++lane) {
        region_bytes.push_back(payload_bytes(node, lane));
        largest_payload_ = std::max(largest_payload_, region_bytes.back());
      }
    }
    regions_.emplace_back(std::move(region_bytes), Placement::Absolute);
  }

  const Regions& regions() const { return regions_.front(); }
  int participant(int node, int lane) const { return node * shape_.lanes() + lane; }
  std::uint64_t region(int lane, int participant) const {
    return static_cast<std::uint64_t>(lane) * regions().total_bytes() +
           regions().offset(0, participant);
  }

  /// Where the blocks of its group begin for a rank: in the region of its leader, and for the
  /// others of a group that exchanges in areas behind those of the leaders.
  std::uint64_t blocks_of_group(int rank) const {
    const int node = shape_.map.node_of[rank];
    const int local = shape_.map.local_rank_of[rank];
    const int lane = shape_.lane_of(rank);
    if (!exchanges_in_group_ || shape_.leader(node, lane) == local) {
      return region(lane, participant(node, lane)) + kHeaderBytes;
    }
    return static_cast<std::uint64_t>(shape_.lanes()) * regions().total_bytes() +
           static_cast<std::uint64_t>(local) * largest_payload_;
  }

  /// From the block of a member to that of the next one, and from there to its first byte.
  std::uint64_t stride(std::uint64_t bytes) const {
    return exchanges_in_group_ ? Regions({bytes}, Placement::Absolute).total_bytes() : bytes;
  }
  std::uint64_t header_bytes() const { return exchanges_in_group_ ? kHeaderBytes : 0; }

  std::uint64_t slot_bytes(int node) const {
    const auto lanes = static_cast<std::uint64_t>(shape_.lanes());
    const auto size = static_cast<std::uint64_t>(shape_.map.node_size(node));
    return lanes * regions().total_bytes() + (exchanges_in_group_ ? size * largest_payload_ : 0);
  }

 private:
  std::uint64_t payload_bytes(int node, int lane) const {
    std::uint64_t bytes = 0;
    for (const int rank : groups_.ranks(node, lane)) bytes += stride(shape_.bytes[rank]);
    return bytes;
  }

  const Shape& shape_;
  const GroupTable& groups_;
  const bool exchanges_in_group_;
  std::vector<Regions> regions_;  // one: of all participants
  std::uint64_t largest_payload_ = 0;
};

class MultiLeaderLowering {
 public:
  MultiLeaderLowering(ExchangeFunction exchange, const Shape& shape, int rank, Gather gather)
      : exchange_function_(exchange),
        shape_(with_distinct_leaders(shape)),
        groups_(shape_),
        areas_(shape_, groups_, gather == Gather::Exchange),
        exchanges_in_group_(gather == Gather::Exchange),
        rank_(rank),
        node_(shape_.map.node_of[rank]),
        local_(shape_.map.local_rank_of[rank]),
        lane_(shape_.lane_of(rank)),
        leads_(shape_.leader(node_, lane_) == local_),
        me_(areas_.participant(node_, lane_)),
        exchange_(exchange(shape_.map.nodes() * shape_.lanes(), me_, shape_.ports)),
        steps_(schedule_) {
    for (const int other : groups_.ranks(node_, lane_)) {
      if (other == rank_) break;
      ++member_;
      my_offset_ += areas_.stride(shape_.bytes[other]);
    }
  }

  Schedule run() {
    const int rounds_in_group = exchanges_in_group_ ? gather_by_exchange() : gather_by_copies();
    check_rounds(exchange_);
    if (leads_) {
      lead(rounds_in_group);
    } else {
      follow();
    }
    schedule_.rounds = rounds_in_group + static_cast<int>(exchange_.rounds.size());
    schedule_.slot_bytes = areas_.slot_bytes(node_);
    const bool alone = shape_.map.node_size(node_) == 1;
    schedule_.stages = alone ? 0 : static_cast<std::uint32_t>(arrivals()) + 1;
    if (leads_) schedule_.lane = lane_;
    return std::move(schedule_);
  }

 private:
  std::span<const int> group() const { return groups_.ranks(node_, lane_); }

  /// All participants await as many transfers, so the stages of a leader are known to its group.
  std::size_t arrivals() const {
    std::size_t count = 0;
    for (const Round& round : exchange_.rounds) count += round.awaits.size();
    return count;
  }

  int gather_by_copies() {
    steps_.copy(Memory::Send, 0, Memory::Slot, areas_.blocks_of_group(rank_) + my_offset_,
                shape_.bytes[rank_]);
    if (shape_.map.node_size(node_) > 1) steps_.publish(1);
    if (leads_) await_group();
    return 0;
  }

  void await_group() {
    for (const int other : group()) {
      if (other != rank_) steps_.await_local(shape_.map.local_rank_of[other], 1);
    }
  }

  /// Returns how many rounds the largest group takes, in which others have nothing to do.
  int gather_by_exchange() {
    const Regions regions(block_bytes(shape_, group()), Placement::Absolute);
    const auto count = static_cast<int>(group().size());
    const std::uint64_t mine = areas_.blocks_of_group(rank_) + my_offset_;
    steps_.copy(Memory::Send, 0, Memory::Slot, mine + kHeaderBytes, shape_.bytes[rank_]);
    steps_.stamp(mine);
    const Exchange exchange = exchange_function_(count, member_, shape_.ports);
    check_rounds(exchange);
    for (std::size_t r = 0; r < exchange.rounds.size(); ++r) {
      steps_.enter_round(static_cast<int>(r));
      run_round(exchange.rounds[r], member_, count, regions, [this](int member) {
        const int rank = group()[static_cast<std::size_t>(member)];
        return std::pair(rank, areas_.blocks_of_group(rank));
      });
    }
    std::size_t longest = 0;
    for (int node = 0; node < shape_.map.nodes(); ++node) {
      for (int lane = 0; lane < shape_.lanes(); ++lane) {
        const auto size = static_cast<int>(groups_.ranks(node, lane).size());
        longest = std::max(longest, exchange_function_(size, 0, shape_.ports).rounds.size());
      }
    }
    return static_cast<int>(longest);
  }

  /// `place(i)` is the rank that participant i is, and where its area begins.
  template <class Place>
  void run_round(const Round& round, int me, int count, const Regions& regions,
                 const Place& place) {
    post_puts(round, me, count, regions, place);
    for (std::size_t i = 0; i < round.awaits.size(); ++i) {
      const std::size_t port = port_of(round.awaits[i], i);
      post_await(port, round.awaits[i], me, count, regions, place);
    }
  }

  template <class Place>
  void post_puts(const Round& round, int me, int count, const Regions& regions,
                 const Place& place) {
    const std::uint64_t from = place(me).second;
    for (std::size_t i = 0; i < round.puts.size(); ++i) {
      const std::size_t port = port_of(round.puts[i], i);
      const Transfer& put = round.puts[i];
      const auto [peer, to] = place(put.peer);
      for (const Transfer& piece :
           contiguous_pieces(put, count, Placement::Absolute, me, put.peer)) {
        const std::uint64_t offset = regions.offset(0, piece.first);
        steps_.put(port, peer, Memory::Slot, from + offset, Memory::Slot, to + offset,
                   regions.span_bytes(piece));
      }
    }
  }

  template <class Place>
  void post_await(std::size_t port, const Transfer& await, int me, int count,
                  const Regions& regions, const Place& place) {
    const std::uint64_t to = place(me).second;
    const int peer = place(await.peer).first;
    for (const Transfer& piece :
         contiguous_pieces(await, count, Placement::Absolute, await.peer, me)) {
      const int header = covers(piece, await.peer, count) ? await.peer : piece.first;
      steps_.await(port, peer, Memory::Slot, to + regions.offset(0, header),
                   to + regions.offset(0, piece.first), regions.span_bytes(piece));
    }
  }

  void lead(int rounds_in_group) {
    const auto place = [this](int participant) {
      const int node = participant / shape_.lanes();
      const int lane = participant % shape_.lanes();
      return std::pair(shape_.map.ranks_of[node][shape_.leader(node, lane)],
                       areas_.region(lane, 0));
    };
    const int count = shape_.map.nodes() * shape_.lanes();
    const bool alone = shape_.map.node_size(node_) == 1;
    steps_.stamp(areas_.region(lane_, me_));
    std::uint32_t stage = 1;
    const Round* before = nullptr;
    for (std::size_t r = 0; r < exchange_.rounds.size(); ++r) {
      const Round& round = exchange_.rounds[r];
      steps_.enter_round(rounds_in_group + static_cast<int>(r));
      post_puts(round, me_, count, areas_.regions(), place);
      // While these puts fly, what is already here goes to its place.
      before == nullptr ? copy_group() : copy_arrivals(*before);
      for (std::size_t i = 0; i < round.awaits.size(); ++i) {
        const std::size_t port = port_of(round.awaits[i], i);
        post_await(port, round.awaits[i], me_, count, areas_.regions(), place);
        if (!alone) steps_.publish(++stage);
      }
      before = &round;
    }
    before == nullptr ? copy_group() : copy_arrivals(*before);
    for (int participant = 0; participant < count; ++participant) {
      if (participant / shape_.lanes() == node_) continue;
      schedule_.header_offsets.push_back(areas_.region(lane_, participant));
    }
  }

  void follow() {
    if (!exchanges_in_group_) await_group();
    copy_group();
    std::uint32_t stage = 1;
    for (const Round& round : exchange_.rounds) {
      for (const Transfer& await : round.awaits) {
        steps_.await_local(shape_.leader(node_, lane_), ++stage);
        copy_arrival(await);
      }
    }
  }

  void copy_group() {
    steps_.copy(Memory::Send, 0, Memory::Receive, shape_.receive_offsets[rank_],
                shape_.bytes[rank_]);
    copy_blocks(node_, lane_, areas_.blocks_of_group(rank_));
  }

  void copy_arrivals(const Round& round) {
    for (const Transfer& await : round.awaits) copy_arrival(await);
  }

  void copy_arrival(const Transfer& await) {
    const int count = shape_.map.nodes() * shape_.lanes();
    for (int i = 0; i < await.count; ++i) {
      const int participant = (await.first + i) % count;
      copy_blocks(participant / shape_.lanes(), participant % shape_.lanes(),
                  areas_.region(lane_, participant) + kHeaderBytes);
    }
  }

  /// The blocks of a group, mine excepted: it comes from the send buffer.
  void copy_blocks(int node, int lane, std::uint64_t at) {
    for (const int from : groups_.ranks(node, lane)) {
      if (from != rank_) {
        steps_.copy(Memory::Slot, at + areas_.header_bytes(), Memory::Receive,
                    shape_.receive_offsets[from], shape_.bytes[from]);
      }
      at += areas_.stride(shape_.bytes[from]);
    }
  }

  const ExchangeFunction exchange_function_;
  const Shape shape_;
  const GroupTable groups_;
  const AreaMap areas_;
  const bool exchanges_in_group_;
  const int rank_;
  const int node_;
  const int local_;
  const int lane_;
  const bool leads_;
  const int me_;  // of my leader, among the participants
  const Exchange exchange_;
  Schedule schedule_;
  StepList steps_;
  int member_ = 0;  // my place in my group
  std::uint64_t my_offset_ = 0;
};

}  // namespace

Schedule lower_multi_leader(ExchangeFunction exchange, const Shape& shape, int rank,
                            Gather gather) {
  check_shape(shape, rank);
  // Leaders of one node have each other's blocks at once: nothing is left to exchange.
  if (shape.map.nodes() == 1) return lower_over_nodes(exchange, shape, rank);
  return MultiLeaderLowering(exchange, shape, rank, gather).run();
}

std::uint64_t multi_leader_slot_bytes(const Shape& shape, Gather gather) {
  if (shape.map.nodes() == 1) {
    return largest_lane_bytes(shape);
  }
  const Shape distinct = with_distinct_leaders(shape);
  const GroupTable groups(distinct);
  const AreaMap areas(distinct, groups, gather == Gather::Exchange);
  std::uint64_t most = 0;
  for (int node = 0; node < shape.map.nodes(); ++node) {
    most = std::max(most, areas.slot_bytes(node));
  }
  return most;
}

}  // namespace allrail::schedule
