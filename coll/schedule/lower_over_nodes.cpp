#include <algorithm>
#include <stdexcept>
#include <vector>

#include "coll/schedule/lower.hpp"
#include "coll/schedule/regions.hpp"
#include "coll/schedule/step_list.hpp"

// Gather in the node, exchange among the leaders, broadcast in the node.
//
// A flag at stage 1 says "my block is in the slot". The flag of a leader at stage s > 1 says "what
// I awaited in the first s - 1 transfers is in the slot", so that blocks are copied out while later
// ones are still in flight. All lanes run the same exchange, so their stages mean the same
// transfers. A rank that leads several lanes awaits a transfer in all of them before it says so.
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
        my_lane_(shape.lane_of(rank)),
        groups_(shape),
        exchange_(exchange(shape.map.nodes(), node_, shape.ports)),
        steps_(schedule_) {
    check_rounds(exchange_);
    for (int lane = 0; lane < lanes_; ++lane) {
      if (leads(lane)) led_.push_back(lane);
    }
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
    if (!led_.empty() && shape_.map.nodes() > 1) {
      lead(alone);
    } else {
      copy_local_blocks();
    }
    // Whoever led has copied the arrivals of its lanes already, as far as copied_ says.
    for (std::size_t arrival = 0; arrival < arrivals_.size(); ++arrival) {
      for (int i = 0; i < lanes_; ++i) {
        copy_arrival((my_lane_ + i) % lanes_, arrival);
      }
    }
    for (const int lane : led_) note_headers(lane);
    if (!led_.empty()) schedule_.lane = led_.front();
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
        std::uint64_t bytes = 0;
        for (const int rank : groups_.ranks(node, lane)) bytes += shape_.bytes[rank];
        region_bytes.push_back(bytes);
      }
      regions_.emplace_back(std::move(region_bytes), exchange_.placement);
      if (shape_.lane_bytes > 0) {
        if (regions_.back().total_bytes() > shape_.lane_bytes) {
          throw std::invalid_argument("a lane is longer than its part of the slot");
        }
        slot_bytes_ = shape_.lane_bytes * static_cast<std::uint64_t>(lane);
      }
      lane_starts_.push_back(slot_bytes_);
      slot_bytes_ += regions_.back().total_bytes();
    }
    copied_.assign(lanes_, 0);
  }

  void note_headers(int lane) {
    for (int node = 0; node < shape_.map.nodes(); ++node) {
      if (node == node_) continue;
      schedule_.header_offsets.push_back(region(node_, lane, node));
    }
  }

  bool leads(int lane) const { return shape_.leader(node_, lane) == local_; }

  /// Where the region of `node` in `lane` starts in the slot of node `owner`.
  std::uint64_t region(int owner, int lane, int node) const {
    return lane_starts_[lane] + regions_[lane].offset(owner, node);
  }

  /// My block goes into the region of my group.
  void gather(bool alone) {
    std::uint64_t offset = region(node_, my_lane_, node_) + kHeaderBytes;
    for (const int rank : groups_.ranks(node_, my_lane_)) {
      if (rank == rank_) break;
      offset += shape_.bytes[rank];
    }
    steps_.copy(Memory::Send, 0, Memory::Slot, offset, shape_.bytes[rank_]);
    if (!alone) {
      steps_.publish(1);
    }
  }

  void lead(bool alone) {
    for (const int lane : led_) {
      await_group(lane);
      steps_.stamp(region(node_, lane, node_));
    }
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
      for (std::size_t i = 0; i < round.awaits.size(); ++i) {
        const std::size_t port = port_of(round.awaits[i], i);
        for (const int lane : led_) post_await(port, lane, round.awaits[i]);
        ++arrived;
        if (!alone) {
          steps_.publish(++stage);
        }
      }
    }
  }

  /// Arrivals of the lanes that I lead are copied one round later. Those of other lanes are copied
  /// two rounds later, so that a leader does not stall its own lane for one that is a little
  /// behind.
  void copy_while_flying(std::size_t arrived) {
    if (arrived == 0) {
      return;
    }
    for (std::size_t arrival = copied_[led_.front()]; arrival < arrived; ++arrival) {
      for (const int lane : led_) copy_arrival(lane, arrival);
    }
    const int last_round = arrivals_[arrived - 1].round;
    for (int i = 0; i < lanes_; ++i) {
      const int lane = (my_lane_ + i) % lanes_;
      for (std::size_t arrival = copied_[lane];
           arrival < arrived && arrivals_[arrival].round < last_round; ++arrival) {
        copy_arrival(lane, arrival);
      }
    }
  }

  /// Lanes share the ports of who leads them: puts of one port follow each other.
  void post_puts(const Round& round) {
    for (std::size_t i = 0; i < round.puts.size(); ++i) {
      const std::size_t port = port_of(round.puts[i], i);
      const int peer = round.puts[i].peer;
      const auto pieces =
          contiguous_pieces(round.puts[i], shape_.map.nodes(), exchange_.placement, node_, peer);
      for (const int lane : led_) {
        for (const Transfer& piece : pieces) {
          steps_.put(port, leader(peer, lane), Memory::Slot, region(node_, lane, piece.first),
                     Memory::Slot, region(peer, lane, piece.first),
                     regions_[lane].span_bytes(piece));
        }
      }
    }
  }

  void post_await(std::size_t port, int lane, const Transfer& transfer) {
    const int peer = transfer.peer;
    for (const Transfer& piece :
         contiguous_pieces(transfer, shape_.map.nodes(), exchange_.placement, peer, node_)) {
      const int header = covers(piece, peer, shape_.map.nodes()) ? peer : piece.first;
      steps_.await(port, leader(peer, lane), Memory::Slot, region(node_, lane, header),
                   region(node_, lane, piece.first), regions_[lane].span_bytes(piece));
    }
  }

  int leader(int node, int lane) const {
    return shape_.map.ranks_of[node][shape_.leader(node, lane)];
  }

  void await_group(int lane) {
    for (const int rank : groups_.ranks(node_, lane)) {
      if (rank != rank_) steps_.await_local(shape_.map.local_rank_of[rank], 1);
    }
  }

  void copy_local_blocks() {
    steps_.copy(Memory::Send, 0, Memory::Receive, shape_.receive_offsets[rank_],
                shape_.bytes[rank_]);
    for (int i = 0; i < lanes_; ++i) {
      const int lane = (my_lane_ + i) % lanes_;
      const bool awaited = leads(lane) && shape_.map.nodes() > 1;
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
    if (!leads(lane)) {
      steps_.await_local(shape_.leader(node_, lane), static_cast<std::uint32_t>(arrival) + 2);
    }
    const Transfer& transfer = arrivals_[arrival].transfer;
    for (int i = 0; i < transfer.count; ++i) {
      copy_region(lane, (transfer.first + i) % shape_.map.nodes());
    }
  }

  /// The blocks of a region go to their places, mine excepted: it comes from the send buffer.
  void copy_region(int lane, int node) {
    std::uint64_t offset = region(node_, lane, node) + kHeaderBytes;
    for (const int from : groups_.ranks(node, lane)) {
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
  const GroupTable groups_;
  std::vector<int> led_;  // the lanes that I lead, ascending
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

std::uint64_t largest_lane_bytes(const Shape& shape) {
  const GroupTable groups(shape);
  std::uint64_t largest = 0;
  for (int lane = 0; lane < shape.lanes(); ++lane) {
    std::uint64_t bytes = 2 * kHeaderBytes * static_cast<std::uint64_t>(shape.map.nodes());
    for (int node = 0; node < shape.map.nodes(); ++node) {
      for (const int rank : groups.ranks(node, lane)) bytes += shape.bytes[rank];
    }
    largest = std::max(largest, bytes);
  }
  return largest;
}

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
