#include "coll/done_counts.hpp"

#include <algorithm>
#include <utility>

namespace allrail::coll {

DoneCounts::DoneCounts(const Team& team)
    : team_(team),
      local_(static_cast<std::size_t>(team.roster->node_size(team.node)), 0),
      nodes_(static_cast<std::size_t>(team.roster->nodes()), 0) {}

void DoneCounts::refresh_mine() {
  std::uint64_t done = finished_;
  if (team_.fabric != nullptr) {
    const std::uint64_t open = team_.fabric->oldest_open_call();
    if (open <= done) done = open == 0 ? 0 : open - 1;
  }
  if (done <= mine_) return;
  mine_ = done;
  note_local(team_.local_rank, done);
  team_.segment->line(team_.local_rank).done.store(done, std::memory_order_release);
  shm::notify(*team_.segment);
}

void DoneCounts::refresh() {
  refresh_mine();
  look_at_lines();
}

bool DoneCounts::has_risen() {
  refresh();
  const std::uint64_t before = std::exchange(asked_at_, lowest_local());
  return asked_at_ > before;
}

std::uint64_t DoneCounts::lowest_local() const { return *std::ranges::min_element(local_); }

void DoneCounts::look_at_lines() {
  for (int local = 0; local < static_cast<int>(local_.size()); ++local) {
    note_local(local, team_.segment->line(local).done.load(std::memory_order_acquire));
  }
}

std::uint64_t DoneCounts::of_my_node(std::uint64_t call) {
  // Flags and headers bring counts that are one or two calls old; four is the size of the smallest
  // ring, so that nobody has to wait for a count that was here all the time.
  if (lowest_local() + 3 < call) look_at_lines();
  return lowest_local();
}

bool DoneCounts::look_whether_my_node_is_done(std::uint64_t call) {
  node_was_at_ = lowest_local();
  if (node_was_at_ >= call) return true;
  // Acknowledgements of this rank's own puts may have come since the last call ended.
  if (mine_ < call) refresh_mine();
  look_at_lines();
  node_was_at_ = lowest_local();
  return node_was_at_ >= call;
}

bool DoneCounts::node_of_is_done(int peer, std::uint64_t call) {
  if (call == 0) return true;
  const int node = team_.node_of(peer);
  if (nodes_[static_cast<std::size_t>(node)] >= call) return true;
  if (node == team_.node) return my_node_is_done(call);
  note_node(node, team_.fabric->told_done(peer));
  return nodes_[static_cast<std::size_t>(node)] >= call;
}

void DoneCounts::tell(int peer) {
  look_at_lines();
  const std::uint64_t done = lowest_local();
  std::uint64_t& told = told_.find(peer)->by_message;
  if (done <= told) return;
  told = done;
  team_.fabric->tell_done(peer, done);
}

bool DoneCounts::tell_if_behind(int peer, const Behind& behind) {
  Told& told = *told_.find(peer);
  const bool hears_headers = told.in_headers > told.by_message;
  const std::uint64_t known = std::max(told.by_message, told.in_headers);
  const auto would_help = [&](std::uint64_t done) {
    return hears_headers ? known < behind.needed && behind.needed <= done
                         : known < done && done - known > behind.without_headers;
  };
  // A rank knows of its own count first: most peers are up to date by that alone.
  if (!would_help(mine_)) return false;
  const std::uint64_t done = lowest_local();
  if (!would_help(done)) return false;
  told.by_message = done;
  team_.fabric->tell_done(peer, done);
  return true;
}

}  // namespace allrail::coll
