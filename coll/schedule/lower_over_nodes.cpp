#include <vector>

#include "coll/schedule/lower.hpp"
#include "coll/schedule/regions.hpp"
#include "coll/schedule/step_list.hpp"

// Gather in the node, exchange among the leaders, broadcast in the node.
//
// A flag at stage 1 says "my block is in the slot". The flag of a leader at stage s > 1 says "what
// I awaited in the first s - 1 transfers is in the slot", so that blocks are copied out while later
// ones are still in flight. All lanes run the same exchange, so their stages mean the same
// transfers.
namespace allrail::schedule {
namespace {

class NodeLowering {
 public:
  NodeLowering(ExchangeFunction exchange, const Shape& shape, int rank)
      : shape_(shape),
        rank_(rank),
        node_(shape.map.node_of[rank]),
        local_(shape.map.local_rank_of[rank]),
        lanes_(shape.lanes()),
        my_lane_(shape.lane_of_local(node_, local_)),
        leads_(shape.group(node_, my_lane_).first == local_),
        exchange_(exchange(shape.map.nodes(), node_, shape.ports)),
        steps_(schedule_) {
    check_rounds(exchange_);
    lay_out_lanes();
    for (int round = 0; round < static_cast<int>(exchange_.rounds.size()); ++round) {
      for (const Transfer& transfer : exchange_.rounds[round].awaits) {
        arrivals_.push_back({round, transfer});
      }
    }
  }

  Schedule run() {
    const bool alone = shape_.map.node_size(node_) == 1;
    gather(alone);
    if (leads_ && shape_.map.nodes() > 1) {
      lead(alone);
    } else {
      copy_local_blocks();
    }
    // Whoever led has copied the arrivals of its lane already, as far as copied_ says.
    for (std::size_t arrival = 0; arrival < arrivals_.size(); ++arrival) {
      for (int i = 0; i < lanes_; ++i) {
        copy_arrival((my_lane_ + i) % lanes_, arrival);
      }
    }
    if (leads_) note_headers();
    schedule_.slot_bytes = slot_bytes_;
    schedule_.stages = alone ? 0 : static_cast<std::uint32_t>(arrivals_.size()) + 1;
    schedule_.rounds = static_cast<int>(exchange_.rounds.size());
    return std::move(schedule_);
  }

 private:
  void lay_out_lanes() {
    for (int lane = 0; lane < lanes_; ++lane) {
      std::vector<std::uint64_t> region_bytes;
      region_bytes.reserve(shape_.map.nodes());
      for (int node = 0; node < shape_.map.nodes(); ++node) {
        const Group group = shape_.group(node, lane);
        std::uint64_t bytes = 0;
        for (int i = 0; i < group.count; ++i) {
          bytes += shape_.bytes[shape_.map.ranks_of[node][group.first + i]];
        }
        region_bytes.push_back(bytes);
      }
      regions_.emplace_back(std::move(region_bytes), exchange_.placement);
      lane_starts_.push_back(slot_bytes_);
      slot_bytes_ += regions_.back().total_bytes();
    }
    copied_.assign(lanes_, 0);
  }

  void note_headers() {
    for (int node = 0; node < shape_.map.nodes(); ++node) {
      if (node == node_) continue;
      schedule_.header_offsets.push_back(region(node_, my_lane_, node));
    }
  }

  /// Where the region of `node` in `lane` starts in the slot of node `owner`.
  std::uint64_t region(int owner, int lane, int node) const {
    return lane_starts_[lane] + regions_[lane].offset(owner, node);
  }

  /// My block goes into the region of my group.
  void gather(bool alone) {
    const Group group = shape_.group(node_, my_lane_);
    std::uint64_t offset = region(node_, my_lane_, node_) + kHeaderBytes;
    for (int local = group.first; local < local_; ++local) {
      offset += shape_.bytes[shape_.map.ranks_of[node_][local]];
    }
    steps_.copy(Memory::Send, 0, Memory::Slot, offset, shape_.bytes[rank_]);
    if (!alone) {
      steps_.publish(1);
    }
  }

  void lead(bool alone) {
    await_group(my_lane_);
    steps_.stamp(region(node_, my_lane_, node_));
    std::uint32_t stage = 1;
    std::size_t arrived = 0;
    for (int r = 0; r < static_cast<int>(exchange_.rounds.size()); ++r) {
      const Round& round = exchange_.rounds[r];
      steps_.enter_round(r);
      post_puts(round);
      if (r == 0) {
        copy_local_blocks();
      } else {
        copy_while_flying(arrived);
      }
      for (std::size_t port = 0; port < round.awaits.size(); ++port) {
        post_await(port, round.awaits[port]);
        ++arrived;
        if (!alone) {
          steps_.publish(++stage);
        }
      }
    }
  }

  /// Arrivals of my lane are copied one round later. Those of other lanes are copied two rounds
  /// later, so that a leader does not stall its own lane for one that is a little behind.
  void copy_while_flying(std::size_t arrived) {
    for (std::size_t arrival = 0; arrival < arrived; ++arrival) {
      copy_arrival(my_lane_, arrival);
    }
    if (arrived == 0) {
      return;
    }
    const int last_round = arrivals_[arrived - 1].round;
    for (int i = 1; i < lanes_; ++i) {
      for (std::size_t arrival = 0; arrivals_[arrival].round < last_round; ++arrival) {
        copy_arrival((my_lane_ + i) % lanes_, arrival);
      }
    }
  }

  void post_puts(const Round& round) {
    for (std::size_t port = 0; port < round.puts.size(); ++port) {
      const int peer = round.puts[port].peer;
      for (const Transfer& piece : contiguous_pieces(round.puts[port], shape_.map.nodes(),
                                                     exchange_.placement, node_, peer)) {
        steps_.put(port, leader(peer, my_lane_), Memory::Slot, region(node_, my_lane_, piece.first),
                   Memory::Slot, region(peer, my_lane_, piece.first),
                   regions_[my_lane_].span_bytes(piece));
      }
    }
  }

  void post_await(std::size_t port, const Transfer& transfer) {
    const int peer = transfer.peer;
    for (const Transfer& piece :
         contiguous_pieces(transfer, shape_.map.nodes(), exchange_.placement, peer, node_)) {
      const int header = covers(piece, peer, shape_.map.nodes()) ? peer : piece.first;
      steps_.await(port, leader(peer, my_lane_), Memory::Slot, region(node_, my_lane_, header),
                   region(node_, my_lane_, piece.first), regions_[my_lane_].span_bytes(piece));
    }
  }

  int leader(int node, int lane) const {
    return shape_.map.ranks_of[node][shape_.group(node, lane).first];
  }

  void await_group(int lane) {
    const Group group = shape_.group(node_, lane);
    for (int local = group.first; local < group.first + group.count; ++local) {
      if (local != local_) {
        steps_.await_local(local, 1);
      }
    }
  }

  void copy_local_blocks() {
    steps_.copy(Memory::Send, 0, Memory::Receive, shape_.receive_offsets[rank_],
                shape_.bytes[rank_]);
    for (int i = 0; i < lanes_; ++i) {
      const int lane = (my_lane_ + i) % lanes_;
      const bool awaited = leads_ && lane == my_lane_ && shape_.map.nodes() > 1;
      if (!awaited) {
        await_group(lane);
      }
      copy_region(lane, node_);
    }
  }

  /// What leader `lane` awaited as its transfer number `arrival`, unless it was copied before.
  void copy_arrival(int lane, std::size_t arrival) {
    if (arrival < copied_[lane]) {
      return;
    }
    copied_[lane] = arrival + 1;
    if (!(leads_ && lane == my_lane_)) {
      steps_.await_local(shape_.group(node_, lane).first, static_cast<std::uint32_t>(arrival) + 2);
    }
    const Transfer& transfer = arrivals_[arrival].transfer;
    for (int i = 0; i < transfer.count; ++i) {
      copy_region(lane, (transfer.first + i) % shape_.map.nodes());
    }
  }

  /// The blocks of a region go to their places, mine excepted: it comes from the send buffer.
  void copy_region(int lane, int node) {
    const Group group = shape_.group(node, lane);
    std::uint64_t offset = region(node_, lane, node) + kHeaderBytes;
    for (int i = 0; i < group.count; ++i) {
      const int from = shape_.map.ranks_of[node][group.first + i];
      if (from != rank_) {
        steps_.copy(Memory::Slot, offset, Memory::Receive, shape_.receive_offsets[from],
                    shape_.bytes[from]);
      }
      offset += shape_.bytes[from];
    }
  }

  const Shape& shape_;
  const int rank_;
  const int node_;
  const int local_;
  const int lanes_;
  const int my_lane_;
  const bool leads_;
  const Exchange exchange_;
  Schedule schedule_;
  StepList steps_;
  struct Arrival {
    int round;
    Transfer transfer;
  };
  std::vector<Arrival> arrivals_;  // what the leaders of my node await, in order
  std::vector<Regions> regions_;   // by lane
  std::vector<std::uint64_t> lane_starts_;
  std::uint64_t slot_bytes_ = 0;
  std::vector<std::size_t> copied_;  // by lane: arrivals that I have copied out
};

}  // namespace

Schedule lower_over_nodes(ExchangeFunction exchange, const Shape& shape, int rank) {
  check_shape(shape, rank);
  if (shape.ranks() == 1) {
    Schedule schedule;
    StepList(schedule).copy(Memory::Send, 0, Memory::Receive, shape.receive_offsets[0],
                            shape.bytes[0]);
    return schedule;
  }
  return NodeLowering(exchange, shape, rank).run();
}

}  // namespace allrail::schedule
