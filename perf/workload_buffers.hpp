// What the workloads with bytes have in common: two buffers of any memory, and their blocks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <allrail/communicator.hpp>

#include "lib/diagnostics.hpp"
#include "perf/bench_options.hpp"
#include "perf/blocks.hpp"
#include "perf/workload.hpp"

namespace allrail::perf {

using Bytes = std::span<std::byte>;

/// Memory of any kind.
class BenchMemory {
  using Memory = BenchOptions::Memory;

 public:
  BenchMemory(Communicator& communicator, Memory kind, std::uint64_t bytes) : kind_(kind) {
    if (kind == Memory::Buffer) buffer_ = communicator.allocate<std::byte>(bytes);
    if (kind == Memory::Node) node_buffer_ = communicator.allocate_node_shared<std::byte>(bytes);
    if (kind == Memory::Ordinary) ordinary_.resize(bytes);
  }
  Bytes bytes() {
    if (kind_ == Memory::Node) return node_buffer_;
    if (kind_ == Memory::Buffer) return buffer_;
    return ordinary_;
  }

 private:
  Memory kind_;
  std::vector<std::byte> ordinary_;
  Buffer<std::byte> buffer_;
  NodeBuffer<std::byte> node_buffer_;
};

/// What a workload is made of.
struct Given {
  Communicator& communicator;
  const BenchOptions& options;
  const CallOptions& call;
  Blocks blocks;  // of all ranks; of an alltoall those of this rank, of a broadcast the data

  std::size_t mine() const { return blocks.bytes(static_cast<std::size_t>(communicator.rank())); }
  std::size_t all_at_root() const {
    return communicator.rank() == options.root ? blocks.total() : 0;
  }
};

/// What all have in common: two buffers, and blocks that are numbered by who they are from.
class TwoBuffers : public Workload {
 public:
  TwoBuffers(const Given& given, std::uint64_t send_bytes, std::uint64_t receive_bytes)
      : communicator_(given.communicator),
        options_(given.options),
        call_(given.call),
        blocks_(given.blocks),
        ranks_(static_cast<std::uint64_t>(communicator_.size())),
        rank_(static_cast<std::uint64_t>(communicator_.rank())),
        send_memory_(communicator_, memory_to_send_from(options_), send_bytes),
        receive_memory_(communicator_, options_.memory, receive_bytes),
        send_(send_memory_.bytes()),
        receive_(receive_memory_.bytes()) {}

  std::uint64_t bytes_total() const override { return blocks_.total(); }
  std::span<const std::size_t> block_bytes() const override { return blocks_.counts(); }
  double bus_factor() const override {
    if (bytes_total() == 0) return 0;
    return static_cast<double>(bus_bytes()) / static_cast<double>(bytes_total());
  }

 protected:
  /// What the busiest rank takes from others, or gives them.
  virtual std::uint64_t bus_bytes() const = 0;
  /// The bytes of all blocks whose ranks are on other nodes.
  std::uint64_t bytes_elsewhere() const {
    const std::vector<int> nodes = diagnostics::describe_job(communicator_).node_of;
    std::uint64_t bytes = 0;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
      if (nodes[rank] != communicator_.node()) bytes += blocks_.bytes(rank);
    }
    return bytes;
  }
  /// Nobody's but the result is shared by a node.
  static BenchOptions::Memory memory_to_send_from(const BenchOptions& options) {
    using Memory = BenchOptions::Memory;
    return options.memory == Memory::Node ? Memory::Buffer : options.memory;
  }
  bool is_root() const { return communicator_.rank() == options_.root; }
  Bytes block(Bytes buffer, std::uint64_t index) const {
    return buffer.subspan(blocks_.offset(index), blocks_.bytes(index));
  }
  /// Block `index` of a buffer with the blocks of all, from one rank to another.
  static int name_of(std::uint64_t from, std::uint64_t to, std::uint64_t ranks) {
    return static_cast<int>(from * ranks + to);
  }

  Communicator& communicator_;
  const BenchOptions& options_;
  const CallOptions& call_;
  const Blocks blocks_;
  const std::uint64_t ranks_;
  const std::uint64_t rank_;

 private:
  BenchMemory send_memory_;
  BenchMemory receive_memory_;

 protected:
  Bytes send_;
  Bytes receive_;
};

}  // namespace allrail::perf
