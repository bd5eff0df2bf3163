// alltoallv, whose ranks know their own counts only: they are exchanged first, or the call goes by
// those of an earlier one, and every block says how long it really is.
#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "lib/base/copy.hpp"
#include "lib/base/error.hpp"
#include "lib/overlap.hpp"
#include "lib/world.hpp"

namespace allrail {

void World::alltoallv(const CollectiveCall& call, const CallOptions& options) {
  // Of all exchanges together.
  const base::Deadline deadline = deadline_of(options);
  const PairBlocks blocks = pair_blocks(call);
  if (expected_counts_.is_sure() && go_by_expected_counts(call, blocks, options, deadline)) return;
  coll::PlanRequest request = exchange_counts(blocks, deadline);
  expected_counts_.learn(request.matrix, static_cast<std::size_t>(roster_.ranks()));
  // Counts differ from call to call as a rule, so the plan is not kept.
  const auto plan = make_connected_plan(std::move(request), options, transport::Pace::Unknown);
  engine_->run(*plan, plain_buffers(call), deadline);
}

/// It does not go by expected counts: those of its making are those of all its calls.
std::shared_ptr<UserPlan> World::plan_alltoallv(const CollectiveCall& call,
                                                const CallOptions& options) {
  coll::PlanRequest request = exchange_counts(pair_blocks(call), deadline_of(options));
  return make_user_plan(make_connected_plan(std::move(request), options, transport::Pace::Unknown),
                        plain_buffers(call), options);
}

World::PairBlocks World::pair_blocks(const CollectiveCall& call) {
  PairBlocks blocks{blocks_of(call.counts, call.displacements, call.element_bytes),
                    blocks_of(call.receive_counts, call.receive_displacements, call.element_bytes)};
  check_inside(blocks.sent, call.send.size(), true);
  check_inside(blocks.awaited, call.receive.size(), false);
  check_memory(call.send, call.receive);
  if (overlap(call.send, call.receive)) check_in_place(call, blocks);
  return blocks;
}

/// A rank in place finds what comes from another where what goes there was.
void World::check_in_place(const CollectiveCall& call, const PairBlocks& blocks) {
  if (call.send.data() != call.receive.data() || call.send.size() != call.receive.size()) {
    reject("the send buffer overlaps the receive buffer and is not the same");
  }
  for (std::size_t rank = 0; rank < blocks.sent.size(); ++rank) {
    const coll::PlacedBlock& sent = blocks.sent[rank];
    const coll::PlacedBlock& awaited = blocks.awaited[rank];
    if (sent.bytes == 0 && awaited.bytes == 0) continue;
    if (sent.bytes == awaited.bytes && sent.offset == awaited.offset) continue;
    reject(
        fmt::format("both buffers of an alltoallv are the same, and the blocks to and from rank "
                    "{} are not: {} bytes at {} and {} bytes at {}",
                    rank, sent.bytes, sent.offset, awaited.bytes, awaited.offset));
  }
}

/// Regions of slot memory are laid out by what everybody sends, which nobody knows alone.
coll::PlanRequest World::exchange_counts(const PairBlocks& blocks, base::Deadline deadline) {
  const auto ranks = static_cast<std::size_t>(roster_.ranks());
  coll::PlanRequest request;
  request.operation = coll::Operation::Alltoallv;
  std::vector<std::uint64_t> row;
  row.reserve(blocks.sent.size());
  for (const coll::PlacedBlock& block : blocks.sent) row.push_back(block.bytes);
  request.matrix.resize(ranks * ranks);
  exchange(std::as_bytes(std::span(row)), std::as_writable_bytes(std::span(request.matrix)),
           deadline, coll::Operation::Counts);
  const auto own = static_cast<std::size_t>(team_.rank);
  for (std::size_t from = 0; from < ranks; ++from) {
    check_pair(static_cast<int>(from), team_.rank, request.matrix[from * ranks + own],
               blocks.awaited[from].bytes);
  }
  for (const coll::PlacedBlock& block : blocks.sent) request.send_offsets.push_back(block.offset);
  for (const coll::PlacedBlock& block : blocks.awaited)
    request.receive_offsets.push_back(block.offset);
  request.bytes.assign(ranks, *std::ranges::max_element(request.matrix));
  return request;
}

void World::check_pair(int from, int to, std::uint64_t sent_bytes, std::uint64_t awaited_bytes) {
  if (sent_bytes == awaited_bytes) return;
  engine_->die(Code::Mismatch, from == team_.rank ? to : from,
               fmt::format("rank {} sends {} bytes in an alltoallv, and rank {} awaits {}; every "
                           "rank must make the same call, and the counts of a pair agree",
                           from, sent_bytes, to, awaited_bytes));
}

/// Collective. False if some block of some rank did not fit: all ranks know then, and what has to
/// be sent is where it was.
bool World::go_by_expected_counts(const CollectiveCall& call, const PairBlocks& blocks,
                                  const CallOptions& options, base::Deadline deadline) {
  if (!prepare_envelopes(options)) {
    expected_counts_.has_no_room();
    return false;
  }
  envelopes_.begin(call.send, blocks.sent, call.receive, blocks.awaited);
  engine_->run(*envelopes_plan_.plan, {.envelopes = &envelopes_}, deadline);

  const std::optional<coll::Envelopes::Sums> sums = envelopes_.sums();
  if (!sums) {
    envelopes_.take_back(call.receive, blocks.sent);
    expected_counts_.did_not_fit();
    return false;
  }
  check_envelopes(blocks);
  const coll::PlacedBlock& mine = blocks.sent[static_cast<std::size_t>(team_.rank)];
  const coll::PlacedBlock& place = blocks.awaited[static_cast<std::size_t>(team_.rank)];
  if (mine.bytes > 0 && call.send.data() + mine.offset != call.receive.data() + place.offset) {
    base::copy_block(call.receive.data() + place.offset, call.send.data() + mine.offset,
                     mine.bytes);
  }
  expected_counts_.fitted(sums->total_bytes, sums->longest_bytes);
  return true;
}

/// Both ends of a pair find out that they disagree.
void World::check_envelopes(const PairBlocks& blocks) {
  const int ranks = roster_.ranks();
  for (int other = 0; other < ranks; ++other) {
    const auto at = static_cast<std::size_t>(other);
    const std::uint64_t sent = blocks.sent[at].bytes;
    const std::uint64_t awaited = blocks.awaited[at].bytes;
    if (other == team_.rank) {
      check_pair(other, other, sent, awaited);
      continue;
    }
    const coll::Envelopes::Pair theirs = envelopes_.pair_of(at);
    check_pair(other, team_.rank, theirs.sent_bytes, awaited);
    check_pair(team_.rank, other, sent, theirs.awaited_bytes);
    if (awaited <= envelopes_.room_from(at)) continue;
    engine_->die(Code::Mismatch, other,
                 fmt::format("rank {} says that its block of an alltoallv has {} bytes, which do "
                             "not fit where it lies; it does not make the call of rank {}",
                             other, theirs.sent_bytes, team_.rank));
  }
}

/// All that its plan follows from is the same on all ranks, so they make a new one together. False
/// if slot memory is too small for it.
bool World::prepare_envelopes(const CallOptions& options) {
  EnvelopesPlan& kept = envelopes_plan_;
  const std::uint64_t version = expected_counts_.version();
  const std::uint64_t longest_bytes = expected_counts_.longest_bytes();
  const bool is_asked_alike =
      kept.plan != nullptr && kept.version == version &&
      kept.asked == std::tie(options.algorithm, options.ports, options.leaders);
  if (is_asked_alike && kept.longest_bytes == longest_bytes) return true;
  job_->engines.hand_over();
  try {
    // The choice follows the longest block, also of calls that fitted.
    const coll::Selection chosen =
        select(coll::Operation::Alltoallv, std::array<std::size_t, 1>{longest_bytes}, options,
               coll::MemoryKind::Ordinary);
    kept.longest_bytes = longest_bytes;
    const auto choice = std::tie(chosen.algorithm, chosen.ports, chosen.leaders);
    if (is_asked_alike && kept.chosen == choice) return true;
    kept = {nullptr,
            version,
            longest_bytes,
            {options.algorithm, options.ports, options.leaders},
            choice};
    kept.plan = make_plan(lay_out_envelopes(), options, transport::Pace::Unknown);
    engine_->connect(*kept.plan);
  } catch (const Error& error) {
    if (kept.plan == nullptr && error.code() == Code::ResourceLimit) return false;
    if (error.code() == Code::InvalidArgument) reject(error.what());
    engine_->die(error.code(), error.peer(), error.what());
  }
  return true;
}

coll::PlanRequest World::lay_out_envelopes() {
  const std::span<const std::uint64_t> lengths = expected_counts_.envelopes();
  const auto ranks = static_cast<std::size_t>(roster_.ranks());
  const auto own = static_cast<std::size_t>(team_.rank);
  envelopes_.lay_out(lengths, ranks, own);
  coll::PlanRequest request;
  request.operation = coll::Operation::Alltoallv;
  request.matrix.assign(lengths.begin(), lengths.end());
  request.longest_in_envelope = expected_counts_.longest_bytes();
  // They lie nowhere, but if they did it would be one behind the other.
  std::uint64_t sent_bytes = 0;
  std::uint64_t awaited_bytes = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    request.send_offsets.push_back(sent_bytes);
    request.receive_offsets.push_back(awaited_bytes);
    sent_bytes += lengths[own * ranks + rank];
    awaited_bytes += lengths[rank * ranks + own];
  }
  request.bytes.assign(ranks, *std::ranges::max_element(lengths));
  return request;
}

}  // namespace allrail
