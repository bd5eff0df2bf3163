// One call of any collective with buffers of its own, as a blocking call or as a plan that is
// started again and again with other bytes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {

enum class AnyKind {
  Allgather,
  Allgatherv,
  Gather,
  Gatherv,
  Scatter,
  Scatterv,
  Broadcast,
  Alltoall,
  Alltoallv,
  Barrier,
  Last
};
const char* any_name(AnyKind kind);
/// @throws WrongBytes where no collective has that name.
AnyKind any_kind(const std::string& name);

/// The same on all ranks.
struct AnySpec {
  AnyKind kind = AnyKind::Allgather;
  int root = 0;
  std::size_t bytes = 0;   // of every block; of a v-form, the most
  bool displaced = false;  // of a v-form: blocks in another order, with gaps
  allrail::CallOptions options;
};

class AnyCall {
 public:
  AnyCall(const allrail::Communicator& communicator, const AnySpec& spec);
  // A plan names the buffers by address.
  AnyCall(AnyCall&&) = delete;

  allrail::Plan plan(allrail::Communicator& communicator);
  void call(allrail::Communicator& communicator);
  /// Before a call or a start: `number` is the same on all ranks, and another one every time.
  void fill(std::uint64_t number);
  /// After its end: every byte of every block, and of the gaps between them.
  /// @throws WrongBytes
  void check() const;
  /// Only the receive buffer of this rank is one byte too short then, or (of a broadcast, which
  /// has no wrong length) its root is no rank.
  void spoil();
  std::string text() const;

 private:
  /// Blocks of one buffer, each with a number that tells who it is from and for.
  struct Side {
    std::vector<std::size_t> counts, places;
    std::vector<int> tags;
    std::vector<unsigned char> buffer;
    void add(std::size_t bytes, int tag);
    void lay_out(bool displaced);
    std::span<unsigned char> block(std::size_t index);
  };

  std::size_t bytes_of(int from, int to) const;
  void add_blocks(bool is_v);

  AnySpec spec_;
  int me_, ranks_;
  std::uint64_t number_ = 0;
  Side sent_, received_;
  // Of all ranks' blocks as the call wants them, also where this rank has one of them only.
  std::vector<std::size_t> counts_, places_;
};

}  // namespace probe
