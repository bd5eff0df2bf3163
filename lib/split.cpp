// A communicator that is split off another one. It has everything that the first one of a job has,
// of its own: node segment, slots, rails with their links, control plane. It starts as that one
// does, with cards that its ranks exchange, only that calls of the parent carry them. Its ranks are
// numbered from 0, so nothing below this file knows that there are other communicators
// (docs/decisions/0018-a-communicator-has-rails-of-its-own.md).
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include <fmt/format.h>

#include "lib/base/error.hpp"
#include "lib/split_group.hpp"
#include "lib/world.hpp"
#include "shm/shared_file.hpp"

namespace allrail {
namespace {

/// What a rank tells all ranks of the parent behind a step.
struct Verdict {
  enum class State : std::uint32_t { Well, Failed, FailedByAnother };
  State state = State::Well;
  std::int32_t code = 0;
};

/// Told only where some rank failed, so that no split that goes well carries it. As long as any
/// other text that a rank hears of another.
using Reason = std::array<char, shm::kMaxAbortText>;  // zeros behind it

std::string_view text_of(const Reason& reason) {
  return {reason.data(), ::strnlen(reason.data(), reason.size())};
}

/// A call of a small part of a node needs less memory than one of all of it: together the
/// communicators of a split take about as much as their parent has.
std::uint64_t node_memory_of(std::uint64_t parent_bytes, int largest_node, int parent_largest) {
  const auto part = static_cast<std::uint64_t>(largest_node);
  const std::uint64_t bytes = parent_bytes / static_cast<std::uint64_t>(parent_largest) * part;
  return std::max(kLeastNodeMemoryBytes, bytes);
}

}  // namespace

World::World(const World& parent, std::string name, const std::vector<int>& ranks)
    : options_(parent.options_), job_(parent.job_), is_first_(false) {
  ranks_ = static_cast<int>(ranks.size());
  team_.rank = static_cast<int>(std::ranges::find(ranks, parent.team_.rank) - ranks.begin());
  team_.name = std::move(name);
  team_.job_ranks.reserve(ranks.size());
  for (const int rank : ranks) team_.job_ranks.push_back(parent.team_.job_rank_of(rank));
  job_hash_ = hash_text(job_->bootstrap.job_name() + " " + team_.name);
  identity_ = coll::mix(parent.identity_, hash_text(team_.name));
  cpuset_ = parent.cpuset_;
  place_ = parent.place_;
  outnumbered_ = parent.outnumbered_;
  team_.home_cpu = parent.team_.home_cpu;
  team_.shares_cpus = parent.team_.shares_cpus;
  tuning_ = parent.tuning_;
  wanted_pairs_ = parent.wanted_pairs_;
  leader_policy_ = parent.leader_policy_;
  single_copy_threshold_bytes_ = parent.single_copy_threshold_bytes_;
}

/// One call of split(). Whatever fails on a rank is told to all ranks of the parent before the next
/// step, so that either every rank of every color has its communicator or nobody has, and the
/// parent can go on.
class World::Splitting {
 public:
  Splitting(World& parent, int color, int key) : parent_(parent), wish_{color, key} {}
  ~Splitting() {
    // All are attached, or none will be: the rank that named it may have been killed since.
    if (!segment_name_.empty()) shm::remove_shared_file(segment_name_);
  }
  Splitting(const Splitting&) = delete;
  Splitting& operator=(const Splitting&) = delete;

  std::unique_ptr<World> make() {
    find_group();
    attempt([this] { open(); });
    const std::vector<std::vector<std::byte>> blobs = exchange_cards();
    attempt([this, &blobs] { found(blobs); });
    agree();
    attempt([this] { child_->attach_segment(cards_); });
    agree();
    attempt([this] {
      child_->segment_.unlink();
      child_->enter_segment();
      child_->start_fabric();
      child_->watch_node(cards_);
      child_->start_engine(cards_);
      child_->start_helper();
    });
    agree();
    if (child_) {
      child_->join_job();
      child_->agree_on_reading(cards_);
    }
    return std::move(child_);
  }

 private:
  template <class Action>
  void attempt(const Action& action) {
    if (group_.empty() || verdict_.state != Verdict::State::Well) return;
    try {
      action();
    } catch (const Error& error) {
      fail(error.code(), error.what(),
           error.peer() < 0 ? Verdict::State::Failed : Verdict::State::FailedByAnother);
    } catch (const std::bad_alloc&) {
      fail(Code::ResourceLimit, base::kNoMemory, Verdict::State::Failed);
    }
  }

  void fail(Code code, std::string_view text, Verdict::State state) {
    verdict_.state = state;
    verdict_.code = static_cast<std::int32_t>(code);
    std::memcpy(reason_.data(), text.data(), std::min(text.size(), reason_.size()));
  }

  template <class Word>
  std::vector<Word> exchange(const Word& mine) {
    std::vector<Word> all(static_cast<std::size_t>(parent_.ranks_));
    parent_.exchange(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all)), {},
                     coll::Operation::Split);
    return all;
  }

  void find_group() {
    const std::vector<SplitWish> wishes = exchange(wish_);
    ++parent_.splits_;
    group_ = split_group(wishes, parent_.team_.rank);
  }

  /// The rails, of a group that needs some, and the card that tells others of them.
  void open() {
    auto name = fmt::format("{}/{}:{}", parent_.team_.name, parent_.splits_, wish_.color);
    child_.reset(new World(parent_, std::move(name), group_));
    nodes_ = nodes_of_group(parent_.roster_.node_of_ranks(), group_);
    const bool has_nodes = std::ranges::max(nodes_) > 0;
    const bool by_rail = child_->options_.local_puts == "rail" && group_.size() > 1;
    child_->prepare_or_tell(card_, has_nodes || by_rail);
    child_->fill_in(card_);
    card_.switch_place = parent_.switch_place();
  }

  /// Those of my group, in its order. All ranks of the parent come here, also those that are in no
  /// group: the call is the parent's.
  std::vector<std::vector<std::byte>> exchange_cards() {
    std::vector<std::byte> mine;
    if (child_) mine = encode(card_);
    const std::vector<std::uint64_t> sizes = exchange(std::uint64_t{mine.size()});
    const std::uint64_t largest = std::ranges::max(sizes);
    mine.resize(largest);
    std::vector<std::byte> all(largest * sizes.size());
    parent_.exchange(mine, all, {}, coll::Operation::Split);
    std::vector<std::vector<std::byte>> blobs;
    for (const int rank : group_) {
      const auto at = static_cast<std::size_t>(rank);
      const auto* const begin = all.data() + at * largest;
      blobs.emplace_back(begin, begin + sizes[at]);
    }
    return blobs;
  }

  /// Everything up to the node segment, which the first rank of a node makes.
  void found(const std::vector<std::vector<std::byte>>& blobs) {
    cards_ = child_->take_cards(blobs, card_);
    const schedule::NodeMap map(nodes_);
    const std::uint64_t bytes = node_memory_of(parent_.memory_.node_bytes, map.largest_node,
                                               parent_.roster_.largest_node());
    child_->adopt_nodes(cards_, map, bytes);
    child_->adopt_switches(cards_);
    segment_name_ = child_->segment_name(cards_);
    child_->create_segment(cards_);
  }

  void agree() {
    const std::vector<Verdict> verdicts = exchange(verdict_);
    auto failed = std::ranges::find(verdicts, Verdict::State::Failed, &Verdict::state);
    if (failed == verdicts.end()) {
      failed = std::ranges::find(verdicts, Verdict::State::FailedByAnother, &Verdict::state);
    }
    if (failed == verdicts.end()) return;
    child_.reset();
    const std::vector<Reason> reasons = exchange(reason_);
    const auto rank = static_cast<int>(failed - verdicts.begin());
    base::fail_with_peer(static_cast<Code>(failed->code), rank,
                         "split: rank {} cannot start its new communicator, so nobody gets one: {}",
                         rank, text_of(reasons[static_cast<std::size_t>(rank)]));
  }

  World& parent_;
  SplitWish wish_;
  std::string segment_name_;  // of this node in the new communicator
  std::vector<int> group_;    // ranks of the parent
  std::vector<int> nodes_;    // of the group, numbered anew
  Card card_;
  std::vector<Card> cards_;  // of the group
  std::unique_ptr<World> child_;
  Verdict verdict_;
  Reason reason_{};
};

std::unique_ptr<World> World::split(int color, int key) {
  return enter(coll::Operation::Split, 0, [&] {
    job_->engines.hand_over();
    return Splitting(*this, color, key).make();
  });
}

}  // namespace allrail
