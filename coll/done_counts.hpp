// Which calls are done where: the rule that lets slots be used again.
//
// A rank's done count is the last call whose slot it no longer reads nor sends from; a node's is
// the lowest of its ranks. Before anything is written into a slot of a node, that node must be done
// with the call that had the slot before. Counts travel in block headers and flags; where a chain
// of calls does not bring them, they are told explicitly.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "coll/team.hpp"
#include "transport/peer_table.hpp"

namespace allrail::coll {

class DoneCounts {
 public:
  explicit DoneCounts(const Team& team);

  /// This rank has finished all calls up to and including `call`, as far as the calls themselves
  /// go; puts that are not acknowledged still hold the count back.
  void finished(std::uint64_t call) {
    finished_ = call;
    refresh_mine();
  }
  /// Publishes this rank's count anew: acknowledgements may have arrived.
  void refresh_mine();
  /// That, and a look at the other ranks of the node.
  void refresh();
  /// The same. Whether the node's count is higher than when this was last asked.
  bool has_risen();
  std::uint64_t mine() const { return mine_; }

  /// The node's count for the header of call `call`; looks at the ranks' lines only when what is
  /// known has fallen behind.
  std::uint64_t of_my_node(std::uint64_t call);
  /// Whether every rank of my node is done with `call`.
  bool my_node_is_done(std::uint64_t call) {
    return call <= node_was_at_ || look_whether_my_node_is_done(call);
  }
  void note_local(int local_rank, std::uint64_t done) {
    std::uint64_t& known = local_[static_cast<std::size_t>(local_rank)];
    if (done > known) known = done;
  }

  /// A plan talks to `peer` over rails; before anything is said to it or of it.
  void meet(int peer) { told_.make(peer); }
  /// Whether the node of `peer` is done with `call`, by all that it told us.
  bool node_of_is_done(int peer, std::uint64_t call);
  void note_node(int node, std::uint64_t done) {
    std::uint64_t& known = nodes_[static_cast<std::size_t>(node)];
    if (done > known) known = done;
  }
  /// What is known here of another node, without asking anybody.
  std::uint64_t known_of(int node) const { return nodes_[static_cast<std::size_t>(node)]; }
  /// Tells `peer` this node's count if it does not know it yet. For ranks that wait.
  void tell(int peer);
  struct Behind {
    std::uint64_t without_headers;  // so many calls
    std::uint64_t needed;  // of a peer to which headers of ours have gone since the last message
  };
  /// The same as tell(), by what was seen last and only once the peer has fallen so far behind that
  /// it may soon have to wait. Whether it was told.
  bool tell_if_behind(int peer, const Behind& behind);
  // Half of a ring of sixteen. Headers go on saying it: then it may be more, since what they say
  // rises by nine at once where peers acknowledge by eights, and three quarters still come in time.
  Behind behind_in_small_ring() const { return {8, mine_ - std::min<std::uint64_t>(mine_, 12)}; }
  // In the ring of 64, who hears no headers is told when less than half of it is behind: a word is
  // a segment, which costs a root more than all else of a small call. Of the others only who knows
  // less than a small call needs has to be told: `needed` had the slot of `call` before, 64 calls
  // ago if all calls of a round of the ring were small, and fewer if some took four slots. Nobody
  // had it in the first round.
  static Behind behind_in_smallest_ring(std::uint64_t call, std::uint64_t needed) {
    return {needed == 0 ? UINT64_MAX : std::min<std::uint64_t>(24, (call - needed) / 2), needed};
  }
  // Peers can be three calls ahead; two with headers, which is one more than they acknowledge by.
  Behind behind_in_large_ring() const { return {1, mine_ - std::min<std::uint64_t>(mine_, 2)}; }
  /// Whether all calls up to that one are over here, but for acknowledgements.
  bool has_finished(std::uint64_t call) const { return finished_ >= call; }
  /// A block header on its way to `peer` says this. It learns it when it awaits that block, which
  /// may be later than it needs it: so a rank that waits tells it all the same.
  void note_header(int peer, std::uint64_t done) {
    std::uint64_t& said = told_.find(peer)->in_headers;
    if (done > said) said = done;
  }

 private:
  struct Told {
    std::uint64_t by_message = 0;  // what control messages told the peer
    std::uint64_t in_headers = 0;  // what our block headers on their way to it say
  };
  bool look_whether_my_node_is_done(std::uint64_t call);
  void look_at_lines();
  std::uint64_t lowest_local() const;

  const Team& team_;
  std::uint64_t finished_ = 0;
  std::uint64_t mine_ = 0;
  std::uint64_t node_was_at_ = 0;     // the count of the node at some time
  std::uint64_t asked_at_ = 0;        // the count of the node at the last has_risen()
  std::vector<std::uint64_t> local_;  // by local rank
  std::vector<std::uint64_t> nodes_;  // by node
  transport::PeerTable<Told> told_;   // those that a plan talks to over rails
};

}  // namespace allrail::coll
