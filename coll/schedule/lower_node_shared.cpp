#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "coll/schedule/lower.hpp"
#include "coll/schedule/node_shared_steps.hpp"
#include "coll/schedule/regions.hpp"

// Straight between receive buffers, of which a node has one.
//
// Nobody may write there before all ranks of the node have entered the call, since they may still
// read the last result: a rank copies its block, and a leader tells its peers that they may put,
// only when it has seen the flags of all others. A leader tells its node that everything is there
// when it need not send anything again: whoever returns may write there at once, for example its
// next block in place.
namespace allrail::schedule {
namespace {

/// Blocks that lie beside each other in a receive buffer.
struct Run {
  std::uint64_t offset;
  std::uint64_t bytes;
};

class NodeSharedLowering {
 public:
  NodeSharedLowering(const Exchange& exchange, const Shape& shape, int rank,
                     std::uint64_t most_put_bytes)
      : exchange_(exchange), shape_(shape), most_put_bytes_(most_put_bytes), node_(shape, rank) {}

  Schedule run() {
    const bool has_peers = shape_.map.nodes() > 1;
    node_.publish(NodeSharedSteps::kEntered);
    node_.await_others(NodeSharedSteps::kEntered);
    if (has_peers && node_.leads()) {
      lead();
    } else {
      node_.copy_own();
      node_.publish(NodeSharedSteps::kThere);
      if (has_peers) {
        node_.await_leader(NodeSharedSteps::kThere);
      } else {
        node_.await_others(NodeSharedSteps::kThere);
      }
    }
    node_.schedule().slot_bytes = has_peers ? kHeaderBytes : 0;
    node_.schedule().rounds = static_cast<int>(exchange_.rounds.size());
    return std::move(node_.schedule());
  }

 private:
  void lead() {
    node_.steps().stamp(0);
    node_.copy_own();
    node_.await_others(NodeSharedSteps::kThere);
    bool has_put = false;
    for (int r = 0; r < static_cast<int>(exchange_.rounds.size()); ++r) {
      const Round& round = exchange_.rounds[r];
      node_.steps().enter_round(r);
      for (std::size_t i = 0; i < round.puts.size(); ++i) {
        const std::size_t port = port_of(round.puts[i], i);
        for (const Run& run : runs_of(round.puts[i])) {
          node_.steps().put(port, node_.leader_of(round.puts[i].peer), Memory::Receive, run.offset,
                            Memory::Receive, run.offset, run.bytes);
          has_put = true;
        }
      }
      for (std::size_t i = 0; i < round.awaits.size(); ++i) {
        const std::size_t port = port_of(round.awaits[i], i);
        for (const Run& run : runs_of(round.awaits[i])) {
          node_.steps().await(port, node_.leader_of(round.awaits[i].peer), Memory::Receive, 0,
                              run.offset, run.bytes);
        }
      }
    }
    if (has_put) node_.steps().await_sent();
    node_.publish(NodeSharedSteps::kThere);
  }

  /// The same at both ends of a transfer, since both have the same receive offsets.
  std::vector<Run> runs_of(const Transfer& transfer) const {
    std::vector<Run> blocks;
    for (int i = 0; i < transfer.count; ++i) {
      for (const int rank : shape_.map.ranks_of[(transfer.first + i) % shape_.map.nodes()]) {
        if (shape_.bytes[rank] > 0) {
          blocks.push_back({shape_.receive_offsets[rank], shape_.bytes[rank]});
        }
      }
    }
    std::ranges::sort(blocks, {}, &Run::offset);
    std::vector<Run> runs;
    for (Run block : blocks) {
      if (!runs.empty() && runs.back().offset + runs.back().bytes == block.offset) {
        const std::uint64_t room = most_put_bytes_ - runs.back().bytes;
        const std::uint64_t joined = std::min(room, block.bytes);
        runs.back().bytes += joined;
        block = {block.offset + joined, block.bytes - joined};
      }
      for (; block.bytes > 0; block.bytes -= std::min(block.bytes, most_put_bytes_)) {
        runs.push_back({block.offset, std::min(block.bytes, most_put_bytes_)});
        block.offset += runs.back().bytes;
      }
    }
    return runs;
  }

  const Exchange& exchange_;
  const Shape& shape_;
  const std::uint64_t most_put_bytes_;
  NodeSharedSteps node_;
};

/// Ranks of `node` that do not follow the one before them.
std::uint64_t runs_of_node(const NodeMap& map, int node) {
  const std::vector<int>& ranks = map.ranks_of[node];
  std::uint64_t runs = 1;
  for (std::size_t i = 1; i < ranks.size(); ++i) runs += ranks[i] == ranks[i - 1] + 1 ? 0 : 1;
  return runs;
}

}  // namespace

Schedule lower_node_shared(ExchangeFunction exchange, const Shape& shape, int rank,
                           std::uint64_t most_put_bytes) {
  check_shape(shape, rank);
  const Exchange made = exchange(shape.map.nodes(), shape.map.node_of[rank], shape.ports);
  check_rounds(made);
  if (made.placement != Placement::Absolute && shape.map.nodes() > 1) {
    throw std::invalid_argument(
        "an exchange with relative placement needs slot memory to shift in");
  }
  if (most_put_bytes == 0) throw std::invalid_argument("a put has at least one byte");
  return NodeSharedLowering(made, shape, rank, most_put_bytes).run();
}

std::uint64_t most_runs_per_transfer(ExchangeFunction exchange, const Shape& shape) {
  std::uint64_t most_runs = 0;
  for (int node = 0; node < shape.map.nodes(); ++node) {
    most_runs = std::max(most_runs, runs_of_node(shape.map, node));
  }
  // An exchange is the same for all participants but for their places: what node 0 does is enough.
  int most_nodes = 0;
  for (const Round& round : exchange(shape.map.nodes(), 0, shape.ports).rounds) {
    for (const Transfer& put : round.puts) most_nodes = std::max(most_nodes, put.count);
    for (const Transfer& await : round.awaits) most_nodes = std::max(most_nodes, await.count);
  }
  return most_runs * static_cast<std::uint64_t>(most_nodes);
}

}  // namespace allrail::schedule
