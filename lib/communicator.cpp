#include <allrail/communicator.hpp>

#include "lib/world.hpp"

namespace allrail {

Communicator Communicator::world(const Options& options) {
  return Communicator(std::make_unique<World>(options));
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

std::optional<Communicator> Communicator::split(int color, int key) const {
  std::unique_ptr<World> part = world_->split(color, key);
  if (!part) return std::nullopt;
  return Communicator(std::move(part));
}

void Communicator::barrier(std::chrono::milliseconds timeout) { world_->barrier(timeout); }

Plan Communicator::plan_barrier(const CallOptions& options) {
  return Plan(world_->plan_barrier(options));
}

void Communicator::allgather_bytes(std::span<const std::byte> send, std::span<std::byte> recv,
                                   const CallOptions& options) {
  world_->allgather(send, recv, options);
}

void Communicator::allgatherv_bytes(std::span<const std::byte> send, std::span<std::byte> recv,
                                    std::span<const std::size_t> counts,
                                    std::span<const std::size_t> displacements,
                                    std::size_t element_bytes, const CallOptions& options) {
  world_->allgatherv(send, recv, counts, displacements, element_bytes, options);
}

Plan Communicator::plan_allgather_bytes(std::span<const std::byte> send, std::span<std::byte> recv,
                                        const CallOptions& options) {
  return Plan(world_->plan_allgather(send, recv, options));
}

Plan Communicator::plan_allgatherv_bytes(std::span<const std::byte> send, std::span<std::byte> recv,
                                         std::span<const std::size_t> counts,
                                         std::span<const std::size_t> displacements,
                                         std::size_t element_bytes, const CallOptions& options) {
  return Plan(world_->plan_allgatherv(send, recv, counts, displacements, element_bytes, options));
}

void Communicator::call(const CollectiveCall& call, const CallOptions& options) {
  world_->call(call, options);
}

Plan Communicator::plan(const CollectiveCall& call, const CallOptions& options) {
  return Plan(world_->plan(call, options));
}

BufferMemory Communicator::allocate_bytes(std::size_t count, std::size_t element_bytes) {
  return world_->allocate(count, element_bytes, MemoryOwner::Rank);
}

BufferMemory Communicator::allocate_node_shared_bytes(std::size_t count,
                                                      std::size_t element_bytes) {
  return world_->allocate(count, element_bytes, MemoryOwner::Node);
}

std::vector<RailStatistics> Communicator::rail_statistics() { return world_->rail_statistics(); }

}  // namespace allrail
