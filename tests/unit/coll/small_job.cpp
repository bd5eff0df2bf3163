#include "tests/unit/coll/small_job.hpp"

#include <algorithm>
#include <numeric>

namespace allrail::coll::testing {
namespace {

SlotGeometry geometry() {
  SlotGeometry geometry;
  geometry.small_slot_bytes = 16384;
  geometry.large_slot_bytes = 65536;
  return geometry;
}

shm::SegmentLayout layout_of_one_rank() {
  shm::SegmentLayout layout;
  layout.ranks = 1;
  layout.small_slot_bytes = geometry().small_slot_bytes;
  layout.large_slot_bytes = geometry().large_slot_bytes;
  return shm::lay_out(layout);
}

}  // namespace

SmallJob::SmallJob(int ranks)
    : network_(std::make_unique<transport::FakeNetwork>(
          1, ranks, std::vector<transport::FakeRailOptions>(1))),
      layouts_{{}, layout_of_one_rank()} {
  std::vector<int> node_of(static_cast<std::size_t>(ranks));
  std::iota(node_of.begin(), node_of.end(), 0);
  const schedule::NodeMap map(node_of);
  for (int rank = 0; rank < ranks; ++rank) {
    ranks_.push_back(std::make_unique<Rank>());
    Rank& one = at(rank);
    one.roster = Roster(map, rank);
    one.segment = std::move(shm::NodeSegment::in_memory(layouts_[1]).front());
    transport::FabricOptions options;
    options.now_ns = [network = network_.get()] { return network->now_ns(); };
    std::vector<std::unique_ptr<transport::Rail>> rails;
    rails.push_back(network_->make_rail(rank, 0));
    one.fabric = std::make_unique<transport::Fabric>(rank, ranks, std::move(rails), options);
    one.fabric->set_primary_window(one.segment.bytes());
    one.team.rank = one.team.node = rank;
    one.team.roster = &one.roster;
    one.team.layouts = &layouts_;
    one.team.segment = &one.segment;
    one.team.fabric = one.fabric.get();
    one.counts = std::make_unique<DoneCounts>(one.team);
    one.context = std::make_unique<ExecutionContext>(
        ExecutionContext{one.team, *one.counts, std::vector<std::uint64_t>(1)});
    one.execution = std::make_unique<Execution>(*one.context);
    one.slots = std::make_unique<SlotRing>(geometry());
  }
}

SmallJob::~SmallJob() = default;

void SmallJob::plan(const std::string& algorithm, std::uint64_t bytes,
                    std::uint64_t zero_copy_threshold) {
  bytes_ = bytes;
  PlanRequest request;
  request.algorithm = algorithm;
  for (int rank = 0; rank < size(); ++rank) {
    request.bytes.push_back(bytes);
    request.receive_offsets.push_back(static_cast<std::uint64_t>(rank) * bytes);
  }
  if (in_buffers_) request.memory = MemoryKind::Buffer;
  PlanLimits limits{geometry().large_slot_bytes, zero_copy_threshold};
  limits.buffer_threshold_bytes = zero_copy_threshold;
  for (int rank = 0; rank < size(); ++rank) {
    Rank& one = at(rank);
    one.plan = std::make_unique<CallPlan>(request, one.roster, limits);
    one.receive.assign(offset_ + slice_offset_ + bytes_ * static_cast<std::uint64_t>(size()),
                       kUntouched);
    if (in_buffers_) {
      one.window =
          one.fabric->register_window(std::span(one.receive).first(one.receive.size() - missing_));
    }
    for (const int peer : one.plan->peers()) {
      one.counts->meet(peer);
      one.fabric->connect(peer,
                          {"", {{"fake0", transport::FakeNetwork::address_of(peer, 0)}}, {{0, 0}}});
    }
  }
}

void SmallJob::receive_into_buffers(std::uint64_t offset, std::uint64_t missing) {
  in_buffers_ = true;
  offset_ = offset;
  missing_ = missing;
}

std::uint64_t SmallJob::registrations(int rank) const {
  return at(rank).fabric->counters().front().registrations;
}

void SmallJob::start(int rank, std::uint64_t stamp) {
  Rank& one = at(rank);
  one.send = sent_by(rank);
  std::ranges::fill(one.receive, kUntouched);
  Call call;
  call.schedule = &one.plan->first();
  call.send = one.send.data();
  call.receive = one.receive.data() + offset_ + slice_offset_;
  call.identity.number = ++one.calls;
  call.identity.stamp = call.identity.flag_stamp = stamp;
  call.description = one.plan->description();
  call.identity.slot = one.slots->take(one.plan->slot_bytes(), call.identity.number);
  if (one.plan->zero_copy()) {
    Buffers memory{one.send.data(), one.receive.data(), one.receive.size(), one.send.size()};
    if (in_buffers_) memory.window = &one.window;
    one.registration.make(*one.fabric, one.budget, memory);
    call.window = in_buffers_ ? &one.window : &one.registration.window();
    call.window_offset = offset_;
    call.slice_offset = slice_offset_;
  }
  one.execution->start(std::move(call));
  one.started = true;
  one.done = false;
}

void SmallJob::run() {
  const std::int64_t end_ns = network_->now_ns() + 10'000'000'000;
  while (network_->now_ns() < end_ns) {
    bool moved = false;
    bool all_done = true;
    for (const auto& one : ranks_) {
      moved = one->fabric->progress() || moved;
      if (!one->started) continue;
      if (!one->done && one->execution->mismatch() == nullptr) {
        one->done = one->execution->advance(true);
      }
      const bool is_over = one->done || one->execution->mismatch() != nullptr;
      all_done = all_done && is_over && one->fabric->flushed();
    }
    if (all_done) return;
    if (!moved) network_->advance(1'000'000);
  }
}

void SmallJob::let_time_pass() {
  const std::int64_t end_ns = network_->now_ns() + 100'000'000;
  while (network_->now_ns() < end_ns) {
    for (const auto& one : ranks_) (void)one->fabric->progress();
    network_->advance(1'000'000);
  }
}

void SmallJob::finish(int rank) {
  Rank& one = at(rank);
  one.execution->finish();
  one.registration.release();
  one.counts->finished(one.calls);
  one.started = false;
}

std::vector<std::byte> SmallJob::block(int rank, int from) const {
  const std::uint64_t place = offset_ + slice_offset_ + static_cast<std::uint64_t>(from) * bytes_;
  const auto begin = at(rank).receive.begin() + static_cast<std::ptrdiff_t>(place);
  return {begin, begin + static_cast<std::ptrdiff_t>(bytes_)};
}

std::vector<std::byte> SmallJob::sent_by(int from) const {
  std::vector<std::byte> bytes(bytes_);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(from) * 31 + 1) % 200);
  }
  return bytes;
}

}  // namespace allrail::coll::testing
