// Gather, scatter, broadcast and alltoall: what a call says is found to be right here, and becomes
// a key that finds its plan.
#include <algorithm>

#include "lib/base/error.hpp"
#include "lib/overlap.hpp"
#include "lib/world.hpp"

namespace allrail {

PlanKey World::key_of(coll::Operation operation, const CallOptions& options) {
  PlanKey key;
  key.operation = operation;
  key.algorithm = &options.algorithm;
  key.ports = options.ports;
  key.leaders = options.leaders;
  return key;
}

void World::check_root(int root) {
  if (root < 0 || root >= roster_.ranks()) {
    reject(fmt::format("the root is {}; ranks are 0 to {}", root, roster_.ranks() - 1));
  }
}

void World::check_memory(std::span<const std::byte> one, std::span<const std::byte> other) {
  if ((one.data() == nullptr && !one.empty()) || (other.data() == nullptr && !other.empty())) {
    reject("a buffer is null and its size is not zero");
  }
}

/// `mine` is one rank's block, `all` what the root has of all ranks: the block at `offset` may be
/// the same memory.
void World::check_blocks(std::span<const std::byte> mine, std::span<const std::byte> all,
                         std::uint64_t offset) {
  check_memory(mine, all);
  const bool in_place = mine.data() == all.data() + offset;
  if (!in_place && overlap(mine, all)) {
    reject("the two buffers of the root overlap, and one is not its block of the other");
  }
}

void World::check_places(std::span<const std::size_t> counts,
                         std::span<const std::size_t> displacements) {
  if (displacements.empty() || displacements.size() == counts.size()) return;
  reject(fmt::format("{} displacements were given for {} counts", displacements.size(),
                     counts.size()));
}

std::vector<coll::PlacedBlock> World::blocks_of(std::span<const std::size_t> counts,
                                                std::span<const std::size_t> displacements,
                                                std::size_t element_bytes) {
  if (static_cast<int>(counts.size()) != roster_.ranks()) {
    reject(fmt::format("{} counts were given for {} ranks", counts.size(), roster_.ranks()));
  }
  check_places(counts, displacements);
  std::vector<coll::PlacedBlock> blocks;
  std::uint64_t next = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    coll::PlacedBlock block{next, 0};
    std::uint64_t end = 0;
    if (__builtin_mul_overflow(counts[rank], element_bytes, &block.bytes) ||
        (!displacements.empty() &&
         __builtin_mul_overflow(displacements[rank], element_bytes, &block.offset)) ||
        __builtin_add_overflow(block.offset, block.bytes, &end)) {
      reject(fmt::format("the block of rank {} does not fit into memory", rank));
    }
    next = end;
    blocks.push_back(block);
  }
  return blocks;
}

void World::check_inside(const std::vector<coll::PlacedBlock>& blocks, std::uint64_t buffer_bytes,
                         bool may_overlap) {
  std::vector<coll::PlacedBlock> filled;
  for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
    const coll::PlacedBlock& block = blocks[rank];
    if (block.bytes == 0) continue;
    if (block.offset + block.bytes > buffer_bytes) {
      reject(fmt::format("the block of rank {} ends at byte {}, the buffer has {} bytes", rank,
                         block.offset + block.bytes, buffer_bytes));
    }
    filled.push_back(block);
  }
  std::ranges::sort(filled, {}, &coll::PlacedBlock::offset);
  for (std::size_t i = 1; i < filled.size() && !may_overlap; ++i) {
    if (filled[i].offset < filled[i - 1].offset + filled[i - 1].bytes) {
      reject("blocks of the receive buffer overlap");
    }
  }
}

/// Gather and scatter: one side has the block of one rank, the root's other side those of all.
World::Ready World::ready_rooted(const CollectiveCall& call, const CallOptions& options) {
  using Kind = CollectiveCall::Kind;
  check_root(call.root);
  const bool is_root = team_.rank == call.root;
  const bool gathers = call.kind == Kind::Gather || call.kind == Kind::Gatherv;
  const auto mine = gathers ? call.send : std::span<const std::byte>(call.receive);
  const auto all = !is_root  ? std::span<const std::byte>()
                   : gathers ? std::span<const std::byte>(call.receive)
                             : call.send;
  Ready ready{key_of(operation_of(call.kind), options), plain_buffers(call)};
  ready.key.root = call.root;
  // Where blocks lie matters at the root only.
  const std::size_t places = is_root ? call.displacements.size() : 0;
  if (call.kind == Kind::Gather || call.kind == Kind::Scatter) {
    const std::uint64_t expected = static_cast<std::uint64_t>(roster_.ranks()) * mine.size();
    if (is_root && all.size() != expected) {
      reject(
          fmt::format("the {} buffer of root {} has {} bytes, the blocks of all ranks together "
                      "have {}",
                      gathers ? "receive" : "send", call.root, all.size(), expected));
    }
    check_blocks(mine, all, static_cast<std::uint64_t>(call.root) * mine.size());
    ready.key.bytes = mine.size();
  } else {
    const auto blocks =
        blocks_of(call.counts, call.displacements.first(places), call.element_bytes);
    const coll::PlacedBlock& block = blocks[static_cast<std::size_t>(team_.rank)];
    if (mine.size() != block.bytes) {
      reject(fmt::format("the {} buffer has {} bytes, counts[{}] says {}",
                         gathers ? "send" : "receive", mine.size(), team_.rank, block.bytes));
    }
    if (is_root) check_inside(blocks, all.size(), !gathers);
    check_blocks(mine, all, block.offset);
    ready.key.counts = call.counts;
    ready.key.displacements = call.displacements.first(places);
    ready.key.element_bytes = call.element_bytes;
  }
  // Blocks go one way: rails read nothing of who receives, and put nothing to who sends.
  const bool receives = is_root == gathers;
  (receives ? ready.buffers.send_bytes : ready.buffers.receive_bytes) = 0;
  if (!is_root) {
    if (gathers) {
      ready.buffers.receive = nullptr;
    } else {
      ready.buffers.send = nullptr;
    }
  }
  return ready;
}

World::Ready World::ready(const CollectiveCall& call, const CallOptions& options) {
  Ready ready{key_of(operation_of(call.kind), options), plain_buffers(call)};
  if (call.kind == CollectiveCall::Kind::Broadcast) {
    check_root(call.root);
    check_memory(call.send, call.receive);
    ready.key.root = call.root;
    ready.key.bytes = call.send.size();
    return ready;
  }
  if (call.kind != CollectiveCall::Kind::Alltoall) return ready_rooted(call, options);
  const auto ranks = static_cast<std::uint64_t>(roster_.ranks());
  if (call.send.size() != call.receive.size() ||
      call.send.size() % (ranks * call.element_bytes) != 0) {
    reject(
        fmt::format("the send buffer has {} bytes and the receive buffer {}; both must have the "
                    "same, {} blocks of one size, of whole elements of {} bytes",
                    call.send.size(), call.receive.size(), ranks, call.element_bytes));
  }
  check_memory(call.send, call.receive);
  if (call.send.data() != call.receive.data() && overlap(call.send, call.receive)) {
    reject("the send buffer overlaps the receive buffer and is not the same");
  }
  ready.key.bytes = call.send.size() / ranks;
  return ready;
}

coll::Operation World::operation_of(CollectiveCall::Kind kind) {
  using Kind = CollectiveCall::Kind;
  switch (kind) {
    case Kind::Gather:
      return coll::Operation::Gather;
    case Kind::Gatherv:
      return coll::Operation::Gatherv;
    case Kind::Scatter:
      return coll::Operation::Scatter;
    case Kind::Scatterv:
      return coll::Operation::Scatterv;
    case Kind::Broadcast:
      return coll::Operation::Broadcast;
    case Kind::Alltoall:
      return coll::Operation::Alltoall;
    case Kind::Alltoallv:
      break;
  }
  return coll::Operation::Alltoallv;
}

coll::Buffers World::plain_buffers(const CollectiveCall& call) {
  coll::Buffers buffers;
  buffers.send = call.send.data();
  buffers.send_bytes = call.send.size();
  buffers.receive = call.receive.data();
  buffers.receive_bytes = call.receive.size();
  return buffers;
}

/// Peers put straight into the receive buffer while this rank still sends: where both buffers are
/// the same, it sends from a copy.
bool World::must_copy(const coll::CallPlan& plan, const coll::Buffers& buffers) {
  return plan.zero_copy() && plan.description().operation == coll::Operation::Alltoall &&
         buffers.send == buffers.receive;
}

/// What the call sends from then: empty where that is its own buffer.
std::vector<std::byte> World::copy_if_needed(const coll::CallPlan& plan, coll::Buffers& buffers) {
  std::vector<std::byte> copy;
  if (!must_copy(plan, buffers)) return copy;
  copy.assign(buffers.send, buffers.send + buffers.send_bytes);
  buffers.send = copy.data();
  return copy;
}

void World::call(const CollectiveCall& call, const CallOptions& options) {
  enter(operation_of(call.kind), call.send.size() + call.receive.size(), [&] {
    if (call.kind == CollectiveCall::Kind::Alltoallv) return alltoallv(call, options);
    Ready found = ready(call, options);
    const coll::CallPlan& plan = plan_for(found.key, options);
    const std::vector<std::byte> copy = copy_if_needed(plan, found.buffers);
    run(plan, found.buffers, options);
  });
}

std::shared_ptr<UserPlan> World::plan(const CollectiveCall& call, const CallOptions& options) {
  return enter(operation_of(call.kind), call.send.size() + call.receive.size(), [&] {
    if (call.kind == CollectiveCall::Kind::Alltoallv) return plan_alltoallv(call, options);
    const Ready found = ready(call, options);
    auto plan = make_user_plan(found.key, found.buffers, options);
    // Each start fills it anew.
    plan->sent_copy = copy_if_needed(*plan->plan, plan->run.buffers);
    return plan;
  });
}

}  // namespace allrail
