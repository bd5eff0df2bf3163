#include "lib/job_memory.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>
#include <sys/resource.h>

#include "lib/base/error.hpp"
#include "lib/base/parse.hpp"

namespace allrail {
namespace {

// Of what is free in /dev/shm, how much the nodes of a host may take together.
constexpr std::uint64_t kShareOfSharedMemory = 2;
constexpr std::uint64_t kShareForSegment = 2;
constexpr std::uint64_t kShareForUser = 4;
constexpr std::uint64_t kShareForBuffers = 8;
constexpr std::uint64_t kShareForSplits = 16;
constexpr int kLockCapability = 14;  // CAP_IPC_LOCK

/// Such a number is not the limit that the user knows, and raising that by what is missing is not
/// enough. A new communicator takes a half of what those before it left (Job::take_lockable()).
std::string share_text(bool is_share) {
  if (!is_share) return {};
  return fmt::format(
      " here, its share of the limit: all that is split off has a {}th of it, and each takes a "
      "half "
      "of what is left",
      kShareForSplits);
}

/// The smallest share that any host can give to each of its nodes.
std::uint64_t shared_memory_limit(std::span<const Card> cards, const coll::Roster& roster) {
  std::map<std::string, std::set<int>> nodes_on;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    nodes_on[cards[rank].host].insert(roster.node_of(static_cast<int>(rank)));
  }
  std::uint64_t bytes = UINT64_MAX;
  for (const Card& card : cards) {
    const std::uint64_t share =
        card.shared_memory_bytes / kShareOfSharedMemory / nodes_on[card.host].size();
    bytes = std::min(bytes, std::max(share, kLeastNodeMemoryBytes));
  }
  return bytes;
}

std::uint64_t rails_of(const Card& card) {
  return std::max<std::uint64_t>(1, card.rail_ends.size());
}

/// The rank with the least to lock per rail.
std::size_t tightest(std::span<const Card> cards) {
  std::size_t found = 0;
  for (std::size_t rank = 1; rank < cards.size(); ++rank) {
    const bool less = cards[rank].lockable_bytes / rails_of(cards[rank]) <
                      cards[found].lockable_bytes / rails_of(cards[found]);
    if (less) found = rank;
  }
  return found;
}

/// Whether this process has the capability outside of any user namespace, where the kernel asks.
bool may_lock_anything() {
  std::ifstream map("/proc/self/uid_map");
  std::uint64_t first = 1;
  std::uint64_t outside = 1;
  std::uint64_t count = 0;
  map >> first >> outside >> count;
  if (first != 0 || outside != 0 || count != UINT32_MAX) return false;
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("CapEff:")) continue;
    const std::uint64_t capabilities = std::strtoull(line.c_str() + 7, nullptr, 16);
    return (capabilities >> kLockCapability & 1U) != 0;
  }
  return false;
}

}  // namespace

JobMemory settle_memory(std::span<const Card> cards, const coll::Roster& roster,
                        std::uint64_t wanted_bytes, bool is_share) {
  JobMemory memory;
  memory.is_share = is_share;
  memory.node_bytes = std::min(wanted_bytes, shared_memory_limit(cards, roster));
  const std::size_t rank = tightest(cards);
  const Card& card = cards[rank];
  if (card.lockable_bytes == UINT64_MAX) return memory;

  const std::uint64_t rails = rails_of(card);
  const std::uint64_t for_segment = card.lockable_bytes / kShareForSegment / rails;
  if (for_segment < kLeastNodeMemoryBytes) {
    base::fail_with_peer(
        Code::ResourceLimit, static_cast<int>(rank),
        "rank {} may lock {} bytes of memory{}, and its {} RDMA rails need at least {}; raise the "
        "limit of locked memory there (ulimit -l, or LimitMEMLOCK of the service that starts "
        "ranks), use fewer rails (ALLRAIL_RAILS), {}or ALLRAIL_RAILS=tcp",
        rank, card.lockable_bytes, share_text(is_share), rails,
        kShareForSegment * kLeastNodeMemoryBytes * rails, is_share ? "split less often, " : "");
  }
  memory.segment_is_cut = for_segment < memory.node_bytes;
  memory.node_bytes = std::min(memory.node_bytes, for_segment);
  memory.user_bytes = card.lockable_bytes / kShareForUser / rails;
  memory.buffer_bytes = card.lockable_bytes / kShareForBuffers / rails;
  memory.limiting_rank = static_cast<int>(rank);
  memory.lockable_bytes = card.lockable_bytes;
  memory.rails = static_cast<int>(rails);
  return memory;
}

void check_shared_memory(std::span<const Card> cards, const coll::Roster& roster,
                         std::span<const std::uint64_t> segment_bytes) {
  struct Host {
    std::size_t first_rank;
    std::set<int> nodes;
    std::uint64_t free_bytes;
  };
  std::map<std::string, Host> hosts;
  for (std::size_t rank = 0; rank < cards.size(); ++rank) {
    const Card& card = cards[rank];
    Host& host = hosts.try_emplace(card.host, Host{rank, {}, 0}).first->second;
    host.nodes.insert(roster.node_of(static_cast<int>(rank)));
    // A rank may have looked while another one was still removing what a dead job had left.
    host.free_bytes = std::max(host.free_bytes, card.shared_memory_bytes);
  }
  for (const auto& [name, host] : hosts) {
    std::uint64_t wanted_bytes = 0;
    for (const int node : host.nodes) {
      wanted_bytes += segment_bytes[static_cast<std::size_t>(roster.node_size(node))];
    }
    if (wanted_bytes <= host.free_bytes) continue;
    base::fail_with_peer(
        Code::ResourceLimit, static_cast<int>(host.first_rank),
        "host {} (rank {}) has {} bytes left in /dev/shm, and the node segments there ({} in all) "
        "need {}: enlarge /dev/shm on that host, remove what fills it, or lower "
        "ALLRAIL_NODE_MEMORY where it is above {}",
        host_name(name), host.first_rank, host.free_bytes, host.nodes.size(), wanted_bytes,
        base::format_bytes(kLeastNodeMemoryBytes));
  }
}

std::string segment_warning(const JobMemory& memory, std::uint64_t wanted_bytes) {
  const auto rails = static_cast<std::uint64_t>(memory.rails);
  return fmt::format(
      "rank {} may lock {} of memory{} (ulimit -l), so every node has {} of memory for calls "
      "instead of {}; allow {} for the {} rails there",
      memory.limiting_rank, base::format_bytes(memory.lockable_bytes), share_text(memory.is_share),
      base::format_bytes(memory.node_bytes), base::format_bytes(wanted_bytes),
      base::format_bytes(kShareForSegment * wanted_bytes * rails), rails);
}

std::string user_warning(const JobMemory& memory, std::uint64_t wanted_bytes) {
  const auto rails = static_cast<std::uint64_t>(memory.rails);
  return fmt::format(
      "a call wants to register {} of user memory on each rail, rank {} may lock {} in all{} "
      "(ulimit -l): calls that register more than {} are copied through the memory of the node; "
      "allow {} for such calls",
      base::format_bytes(wanted_bytes), memory.limiting_rank,
      base::format_bytes(memory.lockable_bytes), share_text(memory.is_share),
      base::format_bytes(memory.user_bytes),
      base::format_bytes(kShareForUser * wanted_bytes * rails));
}

std::string buffer_warning(const JobMemory& memory, int rank, std::uint64_t wanted_bytes) {
  const auto rails = static_cast<std::uint64_t>(std::max(memory.rails, 1));
  return fmt::format(
      "rank {} wants to keep {} of Buffers and NodeBuffers registered on each rail and may lock {} "
      "in all{} (ulimit -l): the new ones are treated as ordinary memory on all ranks, so that "
      "calls into them are copied through the memory of the node; allow {} for them",
      rank, base::format_bytes(wanted_bytes),
      memory.lockable_bytes == UINT64_MAX ? "less" : base::format_bytes(memory.lockable_bytes),
      share_text(memory.is_share && memory.lockable_bytes != UINT64_MAX),
      base::format_bytes(kShareForBuffers * wanted_bytes * rails));
}

std::uint64_t lockable_for_splits(std::uint64_t lockable_bytes) {
  return lockable_bytes == UINT64_MAX ? lockable_bytes : lockable_bytes / kShareForSplits;
}

std::uint64_t lockable_memory() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return UINT64_MAX;
  }
  return may_lock_anything() ? UINT64_MAX : limit.rlim_cur;
}

}  // namespace allrail
