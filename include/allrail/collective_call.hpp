// What a call of a collective says, in bytes: how the templates of Communicator reach the library.
#pragma once

#include <cstddef>
#include <ranges>
#include <span>
#include <type_traits>

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

/// How Communicator fills it in.
namespace calls {

template <class Range>
using ElementOf = std::remove_cv_t<std::ranges::range_value_t<Range>>;

template <class Range>
std::span<const std::byte> read_bytes(const Range& range) {
  static_assert(std::ranges::contiguous_range<Range>, "the buffer must be contiguous");
  static_assert(std::is_trivially_copyable_v<ElementOf<Range>>);
  return std::as_bytes(std::span(std::ranges::data(range), std::ranges::size(range)));
}
template <class Range>
std::span<std::byte> write_bytes(Range& range) {
  static_assert(std::ranges::contiguous_range<Range>, "the buffer must be contiguous");
  static_assert(std::is_trivially_copyable_v<ElementOf<Range>>);
  return std::as_writable_bytes(std::span(std::ranges::data(range), std::ranges::size(range)));
}

template <class Send, class Receive>
CollectiveCall pair_call(CollectiveCall::Kind kind, const Send& send, Receive& recv, int root) {
  static_assert(sizeof(ElementOf<Send>) == sizeof(ElementOf<Receive>), "element sizes differ");
  return {kind, read_bytes(send), write_bytes(recv), root, sizeof(ElementOf<Send>)};
}
template <class Send, class Receive>
CollectiveCall gather_call(const Send& send, Receive& recv, int root) {
  return pair_call(CollectiveCall::Kind::Gather, send, recv, root);
}
template <class Send, class Receive>
CollectiveCall scatter_call(const Send& send, Receive& recv, int root) {
  return pair_call(CollectiveCall::Kind::Scatter, send, recv, root);
}
template <class Send, class Receive>
CollectiveCall alltoall_call(const Send& send, Receive& recv) {
  return pair_call(CollectiveCall::Kind::Alltoall, send, recv, -1);
}
template <class Data>
CollectiveCall broadcast_call(Data& data, int root) {
  return {CollectiveCall::Kind::Broadcast, read_bytes(data), write_bytes(data), root,
          sizeof(ElementOf<Data>)};
}
inline CollectiveCall with_counts(CollectiveCall call, std::span<const std::size_t> counts,
                                  std::span<const std::size_t> displacements) {
  call.kind = call.kind == CollectiveCall::Kind::Gather ? CollectiveCall::Kind::Gatherv
                                                        : CollectiveCall::Kind::Scatterv;
  call.counts = counts;
  call.displacements = displacements;
  return call;
}
template <class Send, class Receive>
CollectiveCall alltoallv_call(const Send& send, Receive& recv,
                              std::span<const std::size_t> send_counts,
                              std::span<const std::size_t> send_displacements,
                              std::span<const std::size_t> recv_counts,
                              std::span<const std::size_t> recv_displacements) {
  CollectiveCall call = pair_call(CollectiveCall::Kind::Alltoallv, send, recv, -1);
  call.counts = send_counts;
  call.displacements = send_displacements;
  call.receive_counts = recv_counts;
  call.receive_displacements = recv_displacements;
  return call;
}

}  // namespace calls
}  // namespace allrail
