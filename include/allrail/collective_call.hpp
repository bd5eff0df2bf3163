// What a call of a collective says, in bytes: how the templates of Communicator reach the library.
#pragma once

#include <cstddef>
#include <span>

namespace allrail {

/// Programs have no use for it. Spans are borrowed as the call that fills it in says.
struct CollectiveCall {
  enum class Kind { Gather, Gatherv, Scatter, Scatterv, Broadcast, Alltoall, Alltoallv };
  Kind kind = Kind::Broadcast;
  std::span<const std::byte> send;
  std::span<std::byte> receive;
  int root = -1;
  std::size_t element_bytes = 1;
  std::span<const std::size_t> counts{};          // in elements; of an alltoallv: of what is sent
  std::span<const std::size_t> displacements{};   // empty: one block behind the other
  std::span<const std::size_t> receive_counts{};  // of an alltoallv
  std::span<const std::size_t> receive_displacements{};
};

}  // namespace allrail
