// Whether the ranks of a node copy straight out of each other's memory, settled once at start-up.
#include <algorithm>
#include <cerrno>

#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "lib/base/random.hpp"
#include "lib/world.hpp"

namespace allrail {

/// Whether the ranks of the only node read each other's memory. Whether they may is tried: user,
/// capabilities, seccomp and Yama have a say in it, and each rank may have been started
/// differently. All ranks decide alike.
void World::agree_on_reading(const std::vector<Card>& cards) {
  if (roster_.nodes() > 1 || roster_.ranks() == 1) return;
  CallOptions limit;
  limit.timeout = options_.bootstrap_timeout;
  struct Sample {
    std::uint64_t address = 0;
    std::uint64_t value = 0;
  };
  const std::uint64_t value = base::random_number();
  const Sample mine{reinterpret_cast<std::uintptr_t>(&value), value};
  std::vector<Sample> samples(cards.size());
  exchange(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(samples)), limit);

  std::vector<pid_t> pids;
  pids.reserve(cards.size());
  for (const Card& card : cards) pids.push_back(card.pid);
  const shm::PeerReader reader(std::move(pids));
  struct Finding {
    std::uint64_t is_outnumbered = 0;
    std::uint64_t error_number = 0;
  };
  Finding finding;
  finding.is_outnumbered = outnumbered_ && options_.single_copy != "on" ? 1 : 0;
  for (std::size_t rank = 0; rank < cards.size() && finding.error_number == 0; ++rank) {
    if (static_cast<int>(rank) == team_.rank || options_.single_copy == "off") continue;
    std::uint64_t got = 0;
    finding.error_number =
        static_cast<std::uint64_t>(reader.read(static_cast<int>(rank), samples[rank].address,
                                               reinterpret_cast<std::byte*>(&got), sizeof got));
    // A number that means another process here: the ranks are in different pid namespaces.
    if (finding.error_number == 0 && got != samples[rank].value) finding.error_number = ESRCH;
  }
  std::vector<Finding> found(cards.size());
  exchange(std::as_bytes(std::span(&finding, 1)), std::as_writable_bytes(std::span(found)), limit);
  if (std::ranges::any_of(found, [](const Finding& one) { return one.is_outnumbered != 0; })) {
    base::log_info(
        "ranks outnumber the cores: all blocks are copied through the memory of the node");
    return;
  }
  reads_buffers_ = true;
  if (options_.single_copy == "off") return;
  const auto failed =
      std::ranges::find_if(found, [](const Finding& one) { return one.error_number != 0; });
  if (failed != found.end()) {
    base::log_info(
        "rank {} may not read memory of other ranks ({}): large blocks are copied "
        "through the memory of the node",
        failed - found.begin(), base::errno_text(static_cast<int>(failed->error_number)));
    return;
  }
  base::log_info("ranks of this node read large blocks out of each other's memory");
  reader_ = reader;
  team_.reader = &*reader_;
}

}  // namespace allrail
