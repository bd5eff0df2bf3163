#include <new>

#include <allrail/communicator.hpp>

#include "lib/base/error.hpp"
#include "lib/world.hpp"

namespace allrail {
namespace {

/// By itself, so that calls go on to their World without a frame of their own.
[[noreturn, gnu::noinline, gnu::cold]] void fail_moved_from() {
  base::fail(Code::InvalidArgument, "a call was made on a communicator that was moved from");
}

}  // namespace

Communicator Communicator::world(const Options& options) {
  try {
    return Communicator(std::make_unique<World>(options));
  } catch (const std::bad_alloc&) {
    base::fail(Code::ResourceLimit, "start-up: {}", base::kNoMemory);
  }
}

Communicator::Communicator(std::unique_ptr<World> world) : world_(std::move(world)) {}
Communicator::Communicator(Communicator&&) noexcept = default;
Communicator& Communicator::operator=(Communicator&&) noexcept = default;
Communicator::~Communicator() = default;

int Communicator::rank() const noexcept { return world_->team().rank; }
int Communicator::size() const noexcept { return world_->roster().ranks(); }
int Communicator::node() const noexcept { return world_->team().node; }
int Communicator::node_count() const noexcept { return world_->roster().nodes(); }
int Communicator::node_rank() const noexcept { return world_->team().local_rank; }
int Communicator::node_size() const noexcept { return world_->roster().node_size(node()); }

/// Inline, since what a class exports is called by way of a table otherwise.
inline World& Communicator::live() const {
  if (world_ == nullptr) [[unlikely]]
    fail_moved_from();
  return *world_;
}

std::optional<Communicator> Communicator::split(int color, int key) const {
  std::unique_ptr<World> part = live().split(color, key);
  if (!part) return std::nullopt;
  return Communicator(std::move(part));
}

void Communicator::barrier(std::chrono::milliseconds timeout) { live().barrier(timeout); }

Plan Communicator::plan_barrier(const CallOptions& options) {
  return Plan(live().plan_barrier(options));
}

void Communicator::allgather_bytes(std::span<const std::byte> send, std::span<std::byte> recv,
                                   const CallOptions& options) {
  live().allgather(send, recv, options);
}

void Communicator::allgatherv_bytes(std::span<const std::byte> send, std::span<std::byte> recv,
                                    std::span<const std::size_t> counts,
                                    std::span<const std::size_t> displacements,
                                    std::size_t element_bytes, const CallOptions& options) {
  live().allgatherv(send, recv, counts, displacements, element_bytes, options);
}

Plan Communicator::plan_allgather_bytes(std::span<const std::byte> send, std::span<std::byte> recv,
                                        const CallOptions& options) {
  return Plan(live().plan_allgather(send, recv, options));
}

Plan Communicator::plan_allgatherv_bytes(std::span<const std::byte> send, std::span<std::byte> recv,
                                         std::span<const std::size_t> counts,
                                         std::span<const std::size_t> displacements,
                                         std::size_t element_bytes, const CallOptions& options) {
  return Plan(live().plan_allgatherv(send, recv, counts, displacements, element_bytes, options));
}

void Communicator::call(const CollectiveCall& call, const CallOptions& options) {
  live().call(call, options);
}

Plan Communicator::plan(const CollectiveCall& call, const CallOptions& options) {
  return Plan(live().plan(call, options));
}

BufferMemory Communicator::allocate_bytes(std::size_t count, std::size_t element_bytes) {
  return live().allocate(count, element_bytes, MemoryOwner::Rank);
}

BufferMemory Communicator::allocate_node_shared_bytes(std::size_t count,
                                                      std::size_t element_bytes) {
  return live().allocate(count, element_bytes, MemoryOwner::Node);
}

std::vector<RailStatistics> Communicator::rail_statistics() { return live().rail_statistics(); }

}  // namespace allrail
