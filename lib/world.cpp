#include "lib/world.hpp"

#include <algorithm>
#include <iostream>
#include <limits>
#include <new>
#include <numeric>

#include "coll/allgather/allgather.hpp"
#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "lib/overlap.hpp"
#include "lib/select.hpp"

namespace allrail {
namespace {

/// Nothing but what a call without options says.
bool says_nothing(const CallOptions& options) {
  return options.algorithm.empty() && options.ports == 0 && options.leaders == 0 &&
         options.timeout.count() <= 0;
}

void check_range(const char* name, int value) {
  constexpr int kMost = 64;
  if (value < 0 || value > kMost) {
    base::fail(Code::InvalidArgument, "{} is {}; allowed are 1 to {}, and 0 for a chosen number",
               name, value, kMost);
  }
}

}  // namespace

coll::Selection World::select(coll::Operation operation, std::span<const std::size_t> block_bytes,
                              const CallOptions& options, coll::MemoryKind memory) const {
  coll::PlanRequest request;
  request.operation = operation;
  request.memory = memory;
  request.bytes.assign(block_bytes.begin(), block_bytes.end());
  if (request.bytes.empty()) request.bytes.push_back(0);
  // Plans of alltoallvs are not kept by pace.
  const auto known = operation == coll::Operation::Alltoallv ? transport::Pace::Unknown : pace();
  return choose(request, options, known);
}

coll::PlanRequest World::request_of(const PlanKey& key) const {
  coll::PlanRequest request;
  request.root = key.root;
  request.operation = key.operation;
  request.displaced = !key.displacements.empty();
  const auto ranks = static_cast<std::size_t>(roster_.ranks());
  std::uint64_t offset = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const std::uint64_t bytes =
        key.counts.empty() ? key.bytes : key.counts[rank] * key.element_bytes;
    request.bytes.push_back(bytes);
    request.receive_offsets.push_back(
        request.displaced ? key.displacements[rank] * key.element_bytes : offset);
    offset += bytes;
  }
  request.memory = key.memory;
  request.send_is_mapped = key.send_is_mapped;
  if (key.operation == coll::Operation::Alltoall) request.send_offsets = request.receive_offsets;
  return request;
}

coll::Selection World::choose(const coll::PlanRequest& request, const CallOptions& options,
                              transport::Pace pace) const {
  return select_for(request.operation, roster_, rail_count(), choosers(pace),
                    block_sizes_of(request, roster_), options, request.memory);
}

std::unique_ptr<coll::CallPlan> World::make_plan(coll::PlanRequest request,
                                                 const CallOptions& options,
                                                 transport::Pace pace) const {
  const auto operation = request.operation;
  if (coll::is_barrier(operation)) {
    const auto selection = select_for_barrier(roster_, rail_count());
    request.algorithm = selection.algorithm;
    request.ports = selection.ports;
  } else if (coll::is_own(operation)) {
    // An allgather of next to nothing, whatever the settings ask of allgathers of the user.
    request.algorithm = select_for_allocation(roster_, rail_count()).algorithm;
  } else {
    check_range("ports", options.ports);
    check_range("leaders", options.leaders);
    const auto selection = choose(request, options, pace);
    request.algorithm = selection.algorithm;
    request.ports = selection.ports;
    request.leaders = selection.leaders;
  }
  return std::make_unique<coll::CallPlan>(
      request, roster_,
      coll::PlanLimits{
          geometry_.large_slot_bytes, coll::kZeroCopyThresholdBytes, memory_.user_bytes,
          coll::kBufferThresholdBytes, coll::kNodeBufferThresholdBytes,
          geometry_.most_in_small_ring(), reader_ ? single_copy_threshold_bytes_ : UINT64_MAX,
          reads_buffers_ ? coll::kMappedThresholdBytes : UINT64_MAX,
          options_.broadcast_segment_bytes, shares_cores_ ? coll::kOnceBytes : 0, shares_cores_,
          fabric_ != nullptr, coll::alltoall_threshold_bytes(pace), coll::kRootedThresholdBytes});
}

const coll::CallPlan& World::plan_for(const PlanKey& key, const CallOptions& options) {
  PlanCache& plans = this->plans();
  if (const coll::CallPlan* known = plans.find(key)) return *known;
  return plans.keep(key, make_connected_plan(key, options));
}

std::unique_ptr<coll::CallPlan> World::make_connected_plan(const PlanKey& key,
                                                           const CallOptions& options) {
  return make_connected_plan(request_of(key), options, pace());
}

std::unique_ptr<coll::CallPlan> World::make_connected_plan(coll::PlanRequest request,
                                                           const CallOptions& options,
                                                           transport::Pace pace) {
  job_->engines.hand_over();
  std::unique_ptr<coll::CallPlan> plan;
  try {
    plan = make_plan(std::move(request), options, pace);
    if (plan->copies_because_of_limit() && team_.rank == 0 && !warned_of_copying_) {
      warned_of_copying_ = true;
      base::log_warning("{}", user_warning(memory_, plan->registered_bytes()));
    }
    engine_->connect(*plan);
  } catch (const Error& error) {
    if (error.code() == Code::InvalidArgument) reject(error.what());
    engine_->die(error.code(), error.peer(), error.what());
  }
  return plan;
}

void World::reject(const std::string& text) {
  // The others may already be in this call: they are told, so that they do not hang.
  if (roster_.ranks() > 1) {
    segment_.set_abort(static_cast<int>(Code::Aborted), team_.rank,
                       fmt::format("rank {} called with wrong arguments: {}", team_.rank, text));
    abort_set();
    job_->engines.end_others(*engine_, segment_.abort_record());
    engine_->notice_end();
  }
  throw Error(Code::InvalidArgument, text);
}

void World::run(const coll::CallPlan& plan, const coll::Buffers& buffers,
                const CallOptions& options) {
  engine_->run(plan, buffers, deadline_of(options));
}

coll::MemoryKind World::kind_of(std::span<const std::byte> receive) const noexcept {
  const BufferTable::Entry* const entry = buffers_->find(receive);
  if (entry == nullptr) return coll::MemoryKind::Ordinary;
  if (entry->node_buffer == 0) return coll::MemoryKind::Buffer;
  return entry->registered ? coll::MemoryKind::NodeBuffer : coll::MemoryKind::CopiedNodeBuffer;
}

bool World::is_mapped_for(coll::MemoryKind kind, std::span<const std::byte> send) const noexcept {
  if (kind != coll::MemoryKind::Buffer) return false;
  const BufferTable::Entry* const source = buffers_->find(send);
  return source != nullptr && source->node_buffer == 0;
}

coll::Buffers World::buffers_of(std::span<const std::byte> send, std::span<std::byte> receive,
                                const PlanKey& key) const {
  coll::Buffers buffers = coll::ordinary_buffers(send, receive);
  if (buffers_->empty()) return buffers;
  const BufferTable::Entry* const source = buffers_->find(send);
  buffers.send_is_registered = source != nullptr && source->registered;
  buffers.send_place = BufferTable::place_in(source, send.data());
  if (key.memory == coll::MemoryKind::Ordinary) return buffers;
  const BufferTable::Entry& entry = *buffers_->find(receive);
  buffers.window = &entry.window;
  buffers.window_offset = static_cast<std::uint64_t>(receive.data() - entry.mine.data());
  if (entry.node_buffer == 0) {
    buffers.receive_place = BufferTable::place_in(&entry, receive.data());
    return buffers;
  }
  // Rails read what they send from there.
  buffers.send_is_registered = true;
  buffers.place = coll::mix(entry.node_buffer, buffers.window_offset);
  for (std::size_t rank = 0; rank < key.displacements.size(); ++rank) {
    if (key.counts[rank] == 0) continue;  // it lies nowhere
    buffers.place = coll::mix(buffers.place, key.displacements[rank]);
  }
  return buffers;
}

void World::barrier(std::chrono::milliseconds timeout) {
  enter(coll::Operation::Barrier, 0, [&] {
    if (!barrier_plan_) {
      PlanKey key;
      key.operation = coll::Operation::Barrier;
      barrier_plan_ = make_connected_plan(key, {});
    }
    engine_->run(*barrier_plan_, {}, deadline_of(timeout.count() > 0 ? timeout : options_.timeout));
  });
}

void World::check_allgather(std::span<const std::byte> send, std::span<std::byte> receive,
                            std::uint64_t expected_bytes, std::uint64_t my_offset) {
  if (receive.size() != expected_bytes) {
    reject(fmt::format("the receive buffer has {} bytes, the blocks of all ranks together have {}",
                       receive.size(), expected_bytes));
  }
  if ((send.data() == nullptr && !send.empty()) ||
      (receive.data() == nullptr && !receive.empty())) {
    reject("a buffer is null and its size is not zero");
  }
  const bool in_place = send.data() == receive.data() + my_offset;
  if (!in_place && overlap(send, receive)) {
    reject("the send buffer overlaps the receive buffer and is not this rank's block of it");
  }
}

PlanKey World::allgather_key(std::span<const std::byte> send, std::span<std::byte> receive,
                             const CallOptions& options) {
  const auto ranks = static_cast<std::uint64_t>(roster_.ranks());
  check_allgather(send, receive, ranks * send.size(),
                  static_cast<std::uint64_t>(team_.rank) * send.size());
  const coll::MemoryKind memory = kind_of(receive);
  return allgather_key(send.size(), memory, is_mapped_for(memory, send), options);
}

PlanKey World::allgather_key(std::uint64_t bytes, coll::MemoryKind memory, bool send_is_mapped,
                             const CallOptions& options) {
  PlanKey key;
  key.operation = coll::Operation::Allgather;
  key.bytes = bytes;
  key.algorithm = &options.algorithm;
  key.ports = options.ports;
  key.leaders = options.leaders;
  key.memory = memory;
  key.send_is_mapped = send_is_mapped;
  return key;
}

PlanKey World::allgatherv_key(std::span<const std::byte> send, std::span<std::byte> receive,
                              std::span<const std::size_t> counts,
                              std::span<const std::size_t> displacements, std::size_t element_bytes,
                              const CallOptions& options) {
  if (static_cast<int>(counts.size()) != roster_.ranks()) {
    reject(fmt::format("{} counts were given for {} ranks", counts.size(), roster_.ranks()));
  }
  check_places(counts, displacements);
  std::uint64_t total = 0;
  std::uint64_t my_offset = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> blocks;  // begin and end, for overlaps
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    std::uint64_t bytes = 0;
    std::uint64_t begin = total;
    std::uint64_t end = 0;
    if (__builtin_mul_overflow(counts[rank], element_bytes, &bytes) ||
        (!displacements.empty() &&
         __builtin_mul_overflow(displacements[rank], element_bytes, &begin)) ||
        __builtin_add_overflow(begin, bytes, &end)) {
      reject(fmt::format("the block of rank {} does not fit into memory", rank));
    }
    if (bytes > 0 && end > receive.size()) {
      reject(fmt::format("the block of rank {} ends at byte {}, the receive buffer has {} bytes",
                         rank, end, receive.size()));
    }
    if (bytes > 0 && static_cast<int>(rank) == team_.rank) my_offset = begin;
    total += bytes;
    if (!displacements.empty() && bytes > 0) blocks.emplace_back(begin, end);
  }
  const std::uint64_t mine = counts[static_cast<std::size_t>(team_.rank)] * element_bytes;
  if (send.size() != mine) {
    reject(fmt::format("the send buffer has {} bytes, counts[{}] says {}", send.size(), team_.rank,
                       mine));
  }
  std::ranges::sort(blocks);
  for (std::size_t i = 1; i < blocks.size(); ++i) {
    if (blocks[i].first < blocks[i - 1].second) reject("blocks of the receive buffer overlap");
  }
  check_allgather(send, receive, displacements.empty() ? total : receive.size(), my_offset);
  PlanKey key;
  key.operation = coll::Operation::Allgatherv;
  key.counts = counts;
  key.displacements = displacements;
  key.element_bytes = element_bytes;
  key.algorithm = &options.algorithm;
  key.ports = options.ports;
  key.leaders = options.leaders;
  // With gaps only, the receive buffer of a rank may be empty and that of another not.
  if (total != 0) key.memory = kind_of(receive);
  key.send_is_mapped = is_mapped_for(key.memory, send);
  return key;
}

void World::allgather(std::span<const std::byte> send, std::span<std::byte> receive,
                      const CallOptions& options) {
  enter(coll::Operation::Allgather, send.size() + receive.size(), [&] {
    if (says_nothing(options)) {
      const LastAllgather& last = last_allgather_;
      if (!last.is(send, receive, buffers_->version())) remember_allgather(send, receive, options);
      const coll::CallPlan* plan =
          plans().find_plain_allgather(send.size(), last.memory, last.send_is_mapped);
      if (plan == nullptr) {
        plan = &plan_for(allgather_key(send.size(), last.memory, last.send_is_mapped, options),
                         options);
      }
      return engine_->run(*plan, last.buffers, deadline_of(options_.timeout));
    }
    const PlanKey key = allgather_key(send, receive, options);
    run(plan_for(key, options), buffers_of(send, receive, key), options);
  });
}

void World::remember_allgather(std::span<const std::byte> send, std::span<std::byte> receive,
                               const CallOptions& options) {
  const PlanKey key = allgather_key(send, receive, options);
  last_allgather_ = {send,
                     receive,
                     buffers_->version(),
                     key.memory,
                     key.send_is_mapped,
                     buffers_of(send, receive, key)};
}

void World::allgatherv(std::span<const std::byte> send, std::span<std::byte> receive,
                       std::span<const std::size_t> counts,
                       std::span<const std::size_t> displacements, std::size_t element_bytes,
                       const CallOptions& options) {
  enter(coll::Operation::Allgatherv, send.size() + receive.size(), [&] {
    const PlanKey key =
        allgatherv_key(send, receive, counts, displacements, element_bytes, options);
    run(plan_for(key, options), buffers_of(send, receive, key), options);
  });
}

/// Nobody waits for what is only looked up.
std::vector<RailStatistics> World::rail_statistics() {
  const EntryGuard guard(job_->gate);
  try {
    return read_counters();
  } catch (const std::bad_alloc&) {
    base::fail(Code::ResourceLimit, "rail statistics: {}", base::kNoMemory);
  }
}

std::vector<RailStatistics> World::read_counters() const {
  std::vector<RailStatistics> all;
  if (!fabric_) return all;
  for (const transport::RailCounters& rail : fabric_->counters()) {
    RailStatistics one;
    one.name = rail.name;
    one.bytes_sent = rail.bytes_sent;
    one.bytes_received = rail.bytes_received;
    one.chunks_sent = rail.chunks_sent;
    one.chunks_received = rail.chunks_received;
    one.replays = rail.replays;
    one.fences = rail.fences;
    one.duplicates = rail.duplicates;
    one.reconnects = rail.reconnects;
    one.registrations = rail.registrations;
    one.window_bytes = rail.window_bytes;
    one.rate_bytes_per_second = rail.rate_bytes_per_second;
    all.push_back(std::move(one));
  }
  return all;
}

void World::print_summary() {
  if (options_.log.find("summary") == std::string::npos) return;
  const std::string of = is_first_ ? "" : fmt::format(" of communicator {}", team_.name);
  std::string line = fmt::format("allrail rank {}{} summary:", team_.rank, of);
  for (const RailStatistics& rail : read_counters()) {
    line += fmt::format(
        " {} sent {} bytes in {} chunks, received {} in {}, replays {}, fences {}, duplicates {}, "
        "reconnects {}, window {};",
        rail.name, rail.bytes_sent, rail.chunks_sent, rail.bytes_received, rail.chunks_received,
        rail.replays, rail.fences, rail.duplicates, rail.reconnects, rail.window_bytes);
  }
  if (!fabric_) line += " one node, no rails;";
  line.back() = '\n';
  std::cerr << line << std::flush;
}

}  // namespace allrail
