// The node segment of a World: its first rank makes it, the others attach, all enter.
#include <chrono>
#include <new>
#include <span>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "lib/base/error.hpp"
#include "lib/world.hpp"
#include "shm/shared_file.hpp"

namespace allrail {

/// Of this node's segment: from what its first rank has drawn.
std::string World::segment_name(const std::vector<Card>& cards) const {
  const int first = roster_.local_ranks()[0];
  return shm::NodeSegment::make_name(cards[static_cast<std::size_t>(first)].random);
}

std::vector<shm::MemoryPart> World::lane_memory(const std::vector<Card>& cards) const {
  std::vector<topology::RankPlace> places;
  places.reserve(cards.size());
  for (const Card& card : cards) places.push_back(card.place);
  coll::Roster roster = roster_;
  roster.elect_by(leader_policy_, places);
  const auto grouping =
      roster.grouping(options_.leaders > 0 ? options_.leaders : roster.natural_leaders());
  if (grouping == nullptr || grouping->lanes == 1) return {};
  std::vector<int> memories;
  for (int lane = 0; lane < grouping->lanes; ++lane) {
    const int leader = grouping->leaders[static_cast<std::size_t>(team_.node) *
                                             static_cast<std::size_t>(grouping->lanes) +
                                         static_cast<std::size_t>(lane)];
    const topology::RankPlace& place =
        places[static_cast<std::size_t>(roster.rank_of_local(leader))];
    memories.push_back(place.domain == topology::kUnknownPlace ? -1 : place.domain);
  }
  return coll::lane_parts(layouts_[roster.local_ranks().size()], memories);
}

void World::make_segment(const std::vector<Card>& cards) {
  if (ranks_ == 1) {
    create_segment(cards);
    watch_node(cards);
  } else {
    // Whoever fails here must still come to the fence, or the others would wait there for long.
    std::string failure;
    bool has_no_memory = false;
    try {
      create_segment(cards);
    } catch (const Error& error) {
      failure = error.what();
    } catch (const std::bad_alloc&) {
      has_no_memory = true;
    }
    try {
      job_->bootstrap.fence();
    } catch (const Error&) {
      // The rank that made it may have been killed.
      shm::remove_shared_file(segment_name(cards));
      throw;
    }
    if (has_no_memory) throw Error(Code::ResourceLimit, base::kNoMemory);
    if (!failure.empty()) throw Error(Code::ResourceLimit, failure);
    watch_node(cards);
    attach_segment(cards);
    await_attached(cards);
  }
  enter_segment();
}

void World::create_segment(const std::vector<Card>& cards) {
  const std::span<const int> ranks = roster_.local_ranks();
  const auto& layout = layouts_[ranks.size()];
  if (ranks_ > 1 && team_.local_rank != 0) return;
  if (ranks_ == 1) {
    segment_ = std::move(shm::NodeSegment::in_memory(layout).front());
  } else {
    segment_ = shm::NodeSegment::create(segment_name(cards), layout, lane_memory(cards),
                                        shm::huge_pages_of(options_.huge_pages));
  }
  RailDirectory::write(cards, segment_.directory());
}

void World::attach_segment(const std::vector<Card>& cards) {
  if (team_.local_rank == 0) return;
  const std::span<const int> ranks = roster_.local_ranks();
  const std::string name = segment_name(cards);
  try {
    segment_ = shm::NodeSegment::attach(name, layouts_[ranks.size()],
                                        shm::huge_pages_of(options_.huge_pages));
  } catch (const Error& error) {
    throw Error(error.code(),
                fmt::format("{}; rank {} makes it, see its output first", error.what(), ranks[0]));
  }
  // Its maker does so too, if it still lives.
  if (segment_.attached_count() == segment_.ranks()) shm::remove_shared_file(name);
}

void World::enter_segment() {
  shm::RankLine& line = segment_.line(team_.local_rank);
  line.rank.store(team_.rank, std::memory_order_relaxed);
  line.pid.store(::getpid(), std::memory_order_relaxed);
  line.state.store(shm::RankState::Active, std::memory_order_release);
  shm::enable_sleep(segment_);
  team_.segment = &segment_;
  directory_ = RailDirectory(segment_.directory());
  roster_.elect_by(leader_policy_, directory_.places(roster_.ranks()));
}

/// A rank of this node that ended and never entered the segment, or -1: one that has entered may
/// have done all that it had to do.
int World::ended_outside() const {
  if (!watch_.dead()) return -1;
  for (int local = 0; local < watch_.size(); ++local) {
    if (watch_.is_dead(local) &&
        segment_.line(local).state.load(std::memory_order_acquire) == shm::RankState::Joining) {
      return roster_.rank_of_local(local);
    }
  }
  return -1;
}

void World::await_attached(const std::vector<Card>& cards) {
  if (team_.local_rank != 0) return;
  const auto deadline = base::Deadline::after(options_.bootstrap_timeout);
  while (segment_.attached_count() < segment_.ranks()) {
    if (const int rank = ended_outside(); rank >= 0) {
      base::fail_with_peer(
          Code::PeerLost, rank,
          "rank {} (pid {}) of node {} ended before all had attached to its memory; see its own "
          "output for the reason",
          rank, cards[static_cast<std::size_t>(rank)].pid, team_.node);
    }
    if (deadline.passed()) {
      base::fail(Code::Timeout,
                 "only {} of {} ranks of node {} attached to its memory within {} ms; see the "
                 "output of the others",
                 segment_.attached_count(), segment_.ranks(), team_.node,
                 options_.bootstrap_timeout.count());
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  segment_.unlink();
}

}  // namespace allrail
