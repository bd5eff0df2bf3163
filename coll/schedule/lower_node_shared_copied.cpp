#include <utility>
#include <vector>

#include "coll/schedule/lower.hpp"
#include "coll/schedule/node_shared_steps.hpp"
#include "coll/schedule/regions.hpp"

// Through the slot into a receive buffer that the node shares: gather and exchange as in
// lower_over_nodes() with one lane, then the leader copies what arrived, since a second rank would
// write the same bytes again while others already use them. Every rank writes its own block itself.
namespace allrail::schedule {
namespace {

class CopiedLowering {
 public:
  CopiedLowering(const Exchange& exchange, const Shape& shape, int rank)
      : exchange_(exchange),
        shape_(shape),
        rank_(rank),
        node_(shape, rank),
        regions_(bytes_of_nodes(shape), exchange.placement) {}

  Schedule run() {
    // The block is in the slot when the flag says that this rank has entered.
    node_.steps().copy(Memory::Send, 0, Memory::Slot, place_in_region(), shape_.bytes[rank_]);
    node_.publish(NodeSharedSteps::kEntered);
    node_.await_others(NodeSharedSteps::kEntered);
    if (node_.leads()) {
      lead();
      node_.await_others(NodeSharedSteps::kThere);
      node_.publish(NodeSharedSteps::kThere);
    } else {
      node_.copy_own();
      node_.publish(NodeSharedSteps::kThere);
      node_.await_leader(NodeSharedSteps::kThere);
    }
    node_.schedule().slot_bytes = regions_.total_bytes();
    node_.schedule().rounds = static_cast<int>(exchange_.rounds.size());
    return std::move(node_.schedule());
  }

 private:
  static std::vector<std::uint64_t> bytes_of_nodes(const Shape& shape) {
    std::vector<std::uint64_t> bytes(shape.map.ranks_of.size(), 0);
    for (int rank = 0; rank < shape.ranks(); ++rank) {
      bytes[shape.map.node_of[rank]] += shape.bytes[rank];
    }
    return bytes;
  }

  std::uint64_t place_in_region() const {
    std::uint64_t offset = regions_.offset(node_.node(), node_.node()) + kHeaderBytes;
    for (const int rank : shape_.map.ranks_of[node_.node()]) {
      if (rank == rank_) break;
      offset += shape_.bytes[rank];
    }
    return offset;
  }

  void lead() {
    const int me = node_.node();
    StepList& steps = node_.steps();
    steps.stamp(regions_.offset(me, me));
    for (int r = 0; r < static_cast<int>(exchange_.rounds.size()); ++r) {
      steps.enter_round(r);
      exchange_round(exchange_.rounds[r], r == 0 ? nullptr : &exchange_.rounds[r - 1]);
    }
    if (exchange_.rounds.empty()) {
      node_.copy_own();
    } else {
      copy_out(exchange_.rounds.back());
    }
    for (int node = 0; node < shape_.map.nodes(); ++node) {
      if (node != me) node_.schedule().header_offsets.push_back(regions_.offset(me, node));
    }
  }

  /// While the puts fly, what the round before brought goes to its place.
  void exchange_round(const Round& round, const Round* before) {
    const int me = node_.node();
    const int nodes = shape_.map.nodes();
    for (std::size_t i = 0; i < round.puts.size(); ++i) {
      const std::size_t port = port_of(round.puts[i], i);
      const int peer = round.puts[i].peer;
      for (const Transfer& piece :
           contiguous_pieces(round.puts[i], nodes, exchange_.placement, me, peer)) {
        node_.steps().put(port, node_.leader_of(peer), Memory::Slot,
                          regions_.offset(me, piece.first), Memory::Slot,
                          regions_.offset(peer, piece.first), regions_.span_bytes(piece));
      }
    }
    if (before == nullptr) {
      node_.copy_own();
    } else {
      copy_out(*before);
    }
    for (std::size_t i = 0; i < round.awaits.size(); ++i) {
      const std::size_t port = port_of(round.awaits[i], i);
      const int peer = round.awaits[i].peer;
      for (const Transfer& piece :
           contiguous_pieces(round.awaits[i], nodes, exchange_.placement, peer, me)) {
        const int header = covers(piece, peer, nodes) ? peer : piece.first;
        node_.steps().await(port, node_.leader_of(peer), Memory::Slot, regions_.offset(me, header),
                            regions_.offset(me, piece.first), regions_.span_bytes(piece));
      }
    }
  }

  void copy_out(const Round& round) {
    for (const Transfer& transfer : round.awaits) {
      for (int i = 0; i < transfer.count; ++i) {
        const int node = (transfer.first + i) % shape_.map.nodes();
        std::uint64_t offset = regions_.offset(node_.node(), node) + kHeaderBytes;
        for (const int rank : shape_.map.ranks_of[node]) {
          node_.steps().copy(Memory::Slot, offset, Memory::Receive, shape_.receive_offsets[rank],
                             shape_.bytes[rank]);
          offset += shape_.bytes[rank];
        }
      }
    }
  }

  const Exchange& exchange_;
  const Shape& shape_;
  const int rank_;
  NodeSharedSteps node_;
  const Regions regions_;
};

}  // namespace

Schedule lower_node_shared_copied(ExchangeFunction exchange, const Shape& shape, int rank) {
  check_shape(shape, rank);
  const Exchange made = exchange(shape.map.nodes(), shape.map.node_of[rank], shape.ports);
  check_rounds(made);
  return CopiedLowering(made, shape, rank).run();
}

}  // namespace allrail::schedule
