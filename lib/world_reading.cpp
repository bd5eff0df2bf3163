// Whether the ranks of a node copy straight out of each other's memory, and from which blocks on,
// settled once at start-up.
#include <algorithm>
#include <array>
#include <cerrno>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "lib/base/parse.hpp"
#include "lib/base/random.hpp"
#include "lib/world.hpp"

namespace allrail {
namespace {

// Blocks whose results are no larger are tried, so often each way: some milliseconds.
constexpr std::array<std::uint64_t, 3> kTrialBytes = {64ULL << 10, 256ULL << 10, 1ULL << 20};
constexpr std::uint64_t kMostResultBytes = 4ULL << 20;
constexpr int kTurns = 5;
constexpr int kCallsPerTurn = 4;
// So many calls of several small slots each have had all of them, or all large ones: whoever
// touches a page first waits for the kernel, which is no matter of the way that blocks go.
constexpr int kCallsToTouchSlots = coll::SlotGeometry{}.small_slots / coll::kSlotsTogether;

}  // namespace

/// Whether the ranks of the only node take turns on their cores, and whether they read each other's
/// memory. Whether they may is tried: user, capabilities, seccomp and Yama have a say in it, and
/// each rank may have been started differently. All ranks decide alike.
void World::agree_on_reading(const std::vector<Card>& cards) {
  if (roster_.nodes() > 1 || roster_.ranks() == 1) return;
  or_die(coll::Operation::StartUp, 0, [this, &cards] { find_out_reading(cards); });
}

void World::find_out_reading(const std::vector<Card>& cards) {
  CallOptions limit;
  limit.timeout = options_.bootstrap_timeout;
  struct Sample {
    std::uint64_t address = 0;
    std::uint64_t value = 0;
  };
  const std::uint64_t value = base::random_number();
  const Sample mine{reinterpret_cast<std::uintptr_t>(&value), value};
  std::vector<Sample> samples(cards.size());
  exchange(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(samples)), limit,
           coll::Operation::StartUp);

  std::vector<pid_t> pids;
  pids.reserve(cards.size());
  for (const Card& card : cards) pids.push_back(card.pid);
  const shm::PeerReader reader(std::move(pids));
  struct Finding {
    std::uint64_t is_outnumbered = 0;
    std::uint64_t error_number = 0;
  };
  Finding finding;
  finding.is_outnumbered = outnumbered_ ? 1 : 0;
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
  exchange(std::as_bytes(std::span(&finding, 1)), std::as_writable_bytes(std::span(found)), limit,
           coll::Operation::StartUp);
  shares_cores_ =
      std::ranges::any_of(found, [](const Finding& one) { return one.is_outnumbered != 0; });
  if (shares_cores_ && options_.single_copy != "on") {
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
  reader_ = reader;
  team_.reader = &*reader_;
  if (options_.single_copy == "on") {
    single_copy_threshold_bytes_ = coll::kSingleCopyThresholdBytes;
    // A part of a communicator knows it from the whole.
  } else if (single_copy_threshold_bytes_ == 0) {
    single_copy_threshold_bytes_ = find_single_copy_threshold(limit);
  }
  base::log_info("ranks of this node read large blocks out of each other's memory, from {} on",
                 base::format_bytes(single_copy_threshold_bytes_));
}

/// Sends a block to all both ways, some times, and notes the fastest turn of each. A turn has
/// several calls: the one of a rank that comes last seems short, where blocks lie ready in the
/// segment, and takes as long as the others' where they read each other.
void World::time_single_copy(coll::SingleCopyTrial& trial, const CallOptions& limit) {
  const std::vector<std::byte> block(trial.bytes);
  std::vector<std::byte> all(trial.bytes * static_cast<std::uint64_t>(roster_.ranks()));
  static const std::string no_name;
  PlanKey key;
  key.operation = coll::Operation::StartUp;
  key.bytes = trial.bytes;
  key.algorithm = &no_name;
  const auto plan_from = [&](std::uint64_t threshold_bytes) {
    single_copy_threshold_bytes_ = threshold_bytes;
    return make_connected_plan(key, {});
  };
  const auto reading = plan_from(trial.bytes);
  const auto copying = plan_from(UINT64_MAX);
  const auto time = [&](const coll::CallPlan& plan, int calls = kCallsPerTurn) {
    const std::int64_t begin_ns = base::now_ns();
    for (int call = 0; call < calls; ++call) {
      run(plan, {block.data(), all.data(), all.size()}, limit);
    }
    return static_cast<std::uint64_t>(base::now_ns() - begin_ns) / static_cast<unsigned>(calls);
  };
  time(*copying, kCallsToTouchSlots);
  trial.read_ns = trial.copied_ns = UINT64_MAX;
  for (int turn = 0; turn < kTurns; ++turn) {
    trial.read_ns = std::min(trial.read_ns, time(*reading));
    trial.copied_ns = std::min(trial.copied_ns, time(*copying));
  }
}

/// What the kernel takes for the pages of another process, and which caches two cores have in
/// common, differ too much between machines for a constant, so it is tried. The slowest rank
/// counts, and all decide alike.
std::uint64_t World::find_single_copy_threshold(const CallOptions& limit) {
  std::vector<coll::SingleCopyTrial> trials;
  for (const std::uint64_t bytes : kTrialBytes) {
    if (bytes * static_cast<std::uint64_t>(roster_.ranks()) > kMostResultBytes) break;
    trials.push_back({bytes});
    time_single_copy(trials.back(), limit);
  }
  const auto ranks = static_cast<std::size_t>(roster_.ranks());
  std::vector<coll::SingleCopyTrial> found(ranks * trials.size());
  exchange(std::as_bytes(std::span(trials)), std::as_writable_bytes(std::span(found)), limit,
           coll::Operation::StartUp);
  for (std::size_t i = 0; i < found.size(); ++i) {
    coll::SingleCopyTrial& slowest = trials[i % trials.size()];
    slowest.read_ns = std::max(slowest.read_ns, found[i].read_ns);
    slowest.copied_ns = std::max(slowest.copied_ns, found[i].copied_ns);
  }
  for (const coll::SingleCopyTrial& trial : trials) {
    base::log_debug("blocks of {} took {} ns when they were read, and {} ns through the segment",
                    base::format_bytes(trial.bytes), trial.read_ns, trial.copied_ns);
  }
  return coll::single_copy_threshold(trials);
}

}  // namespace allrail
