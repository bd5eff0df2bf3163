#include "perf/workload.hpp"

#include <algorithm>
#include <span>
#include <vector>

#include "perf/pattern.hpp"

namespace allrail::perf {
namespace {

using Memory = BenchOptions::Memory;
using Bytes = std::span<std::byte>;

constexpr std::byte kStale{0xA5};

/// Memory of any kind.
class BenchMemory {
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

/// What all have in common: two buffers, and blocks that are numbered by who they are from.
class TwoBuffers : public Workload {
 public:
  TwoBuffers(Communicator& communicator, const BenchOptions& options, std::uint64_t bytes,
             const CallOptions& call, std::uint64_t send_bytes, std::uint64_t receive_bytes)
      : communicator_(communicator),
        options_(options),
        call_(call),
        bytes_(bytes),
        ranks_(static_cast<std::uint64_t>(communicator.size())),
        rank_(static_cast<std::uint64_t>(communicator.rank())),
        send_memory_(communicator, options.memory == Memory::Node ? Memory::Buffer : options.memory,
                     send_bytes),
        receive_memory_(communicator, options.memory, receive_bytes),
        send_(send_memory_.bytes()),
        receive_(receive_memory_.bytes()) {}

  double bus_factor() const override {
    return static_cast<double>(ranks_ - 1) / static_cast<double>(ranks_);
  }
  std::uint64_t bytes_total() const override { return ranks_ * bytes_; }
  std::uint64_t rail_bytes() const override { return bytes_ * (ranks_ - node_size()); }

 protected:
  std::uint64_t node_size() const { return static_cast<std::uint64_t>(communicator_.node_size()); }
  bool is_root() const { return communicator_.rank() == options_.root; }
  Bytes block(Bytes buffer, std::uint64_t index) const {
    return buffer.subspan(index * bytes_, bytes_);
  }
  /// Block `index` of a buffer with the blocks of all, from one rank to another.
  static int name_of(std::uint64_t from, std::uint64_t to, std::uint64_t ranks) {
    return static_cast<int>(from * ranks + to);
  }

  Communicator& communicator_;
  const BenchOptions& options_;
  const CallOptions& call_;
  const std::uint64_t bytes_;
  const std::uint64_t ranks_;
  const std::uint64_t rank_;

 private:
  BenchMemory send_memory_;
  BenchMemory receive_memory_;

 protected:
  Bytes send_;
  Bytes receive_;
};

class Allgather final : public TwoBuffers {
 public:
  Allgather(Communicator& communicator, const BenchOptions& options, std::uint64_t bytes,
            const CallOptions& call)
      : TwoBuffers(communicator, options, bytes, call, bytes,
                   bytes * static_cast<std::uint64_t>(communicator.size())) {}

  void call() override { communicator_.allgather(source(), receive_, call_); }
  Plan plan() override { return communicator_.plan_allgather(source(), receive_, call_); }
  bool ranks_end_alike() const override { return true; }
  void prepare(std::uint64_t seed) override {
    // What a node shares is written by one rank of it, and by none that is ahead of others.
    const bool is_shared = options_.memory == Memory::Node;
    if (is_shared) communicator_.barrier();
    if (!is_shared || communicator_.node_rank() == 0) std::ranges::fill(receive_, kStale);
    if (is_shared) communicator_.barrier();
    fill_pattern(source(), communicator_.rank(), seed);
  }
  std::uint64_t wrong(std::uint64_t seed) override {
    std::uint64_t wrong = 0;
    for (std::uint64_t from = 0; from < ranks_; ++from) {
      wrong += wrong_bytes(block(receive_, from), static_cast<int>(from), seed);
    }
    return wrong;
  }

 private:
  Bytes source() const { return options_.in_place ? block(receive_, rank_) : send_; }
};

class Gather final : public TwoBuffers {
 public:
  Gather(Communicator& communicator, const BenchOptions& options, std::uint64_t bytes,
         const CallOptions& call)
      : TwoBuffers(communicator, options, bytes, call, bytes,
                   communicator.rank() == options.root
                       ? bytes * static_cast<std::uint64_t>(communicator.size())
                       : 0) {}

  void call() override { communicator_.gather(source(), receive_, options_.root, call_); }
  Plan plan() override {
    return communicator_.plan_gather(source(), receive_, options_.root, call_);
  }
  void prepare(std::uint64_t seed) override {
    std::ranges::fill(receive_, kStale);
    fill_pattern(source(), communicator_.rank(), seed);
  }
  std::uint64_t wrong(std::uint64_t seed) override {
    std::uint64_t wrong = 0;
    for (std::uint64_t from = 0; is_root() && from < ranks_; ++from) {
      wrong += wrong_bytes(block(receive_, from), static_cast<int>(from), seed);
    }
    return wrong;
  }
  std::uint64_t rail_bytes() const override { return is_root() ? TwoBuffers::rail_bytes() : 0; }

 private:
  Bytes source() const { return options_.in_place && is_root() ? block(receive_, rank_) : send_; }
};

class Scatter final : public TwoBuffers {
 public:
  Scatter(Communicator& communicator, const BenchOptions& options, std::uint64_t bytes,
          const CallOptions& call)
      : TwoBuffers(communicator, options, bytes, call,
                   communicator.rank() == options.root
                       ? bytes * static_cast<std::uint64_t>(communicator.size())
                       : 0,
                   bytes) {}

  void call() override { communicator_.scatter(send_, target(), options_.root, call_); }
  Plan plan() override { return communicator_.plan_scatter(send_, target(), options_.root, call_); }
  void prepare(std::uint64_t seed) override {
    std::ranges::fill(receive_, kStale);
    for (std::uint64_t to = 0; is_root() && to < ranks_; ++to) {
      fill_pattern(block(send_, to), static_cast<int>(to), seed);
    }
  }
  std::uint64_t wrong(std::uint64_t seed) override {
    return wrong_bytes(target(), communicator_.rank(), seed);
  }
  std::uint64_t rail_bytes() const override { return is_root() ? TwoBuffers::rail_bytes() : 0; }

 private:
  Bytes target() const { return options_.in_place && is_root() ? block(send_, rank_) : receive_; }
};

class Broadcast final : public TwoBuffers {
 public:
  Broadcast(Communicator& communicator, const BenchOptions& options, std::uint64_t bytes,
            const CallOptions& call)
      : TwoBuffers(communicator, options, bytes, call, 0, bytes) {}

  void call() override { communicator_.broadcast(receive_, options_.root, call_); }
  Plan plan() override { return communicator_.plan_broadcast(receive_, options_.root, call_); }
  void prepare(std::uint64_t seed) override {
    std::ranges::fill(receive_, kStale);
    if (is_root()) fill_pattern(receive_, 0, seed);
  }
  std::uint64_t wrong(std::uint64_t seed) override { return wrong_bytes(receive_, 0, seed); }
  std::uint64_t bytes_total() const override { return bytes_; }
  double bus_factor() const override { return 1; }
  std::uint64_t rail_bytes() const override { return ranks_ > node_size() ? bytes_ : 0; }
};

class Alltoall final : public TwoBuffers {
 public:
  Alltoall(Communicator& communicator, const BenchOptions& options, std::uint64_t bytes,
           const CallOptions& call)
      : TwoBuffers(communicator, options, bytes, call,
                   bytes * static_cast<std::uint64_t>(communicator.size()),
                   bytes * static_cast<std::uint64_t>(communicator.size())) {}

  void call() override { communicator_.alltoall(source(), receive_, call_); }
  Plan plan() override { return communicator_.plan_alltoall(source(), receive_, call_); }
  void prepare(std::uint64_t seed) override {
    std::ranges::fill(receive_, kStale);
    for (std::uint64_t to = 0; to < ranks_; ++to) {
      fill_pattern(block(source(), to), name_of(rank_, to, ranks_), seed);
    }
  }
  std::uint64_t wrong(std::uint64_t seed) override {
    std::uint64_t wrong = 0;
    for (std::uint64_t from = 0; from < ranks_; ++from) {
      wrong += wrong_bytes(block(receive_, from), name_of(from, rank_, ranks_), seed);
    }
    return wrong;
  }
  std::uint64_t rail_bytes() const override { return node_size() * TwoBuffers::rail_bytes(); }

 private:
  Bytes source() const { return options_.in_place ? receive_ : send_; }
};

class Barrier final : public Workload {
 public:
  explicit Barrier(Communicator& communicator) : communicator_(communicator) {}

  void call() override { communicator_.barrier(); }
  Plan plan() override { return communicator_.plan_barrier(); }
  void prepare(std::uint64_t /*seed*/) override {}
  std::uint64_t wrong(std::uint64_t /*seed*/) override { return 0; }
  std::uint64_t bytes_total() const override { return 0; }
  double bus_factor() const override { return 0; }
  std::uint64_t rail_bytes() const override { return 0; }
  bool can_be_checked() const override { return false; }

 private:
  Communicator& communicator_;
};

}  // namespace

std::unique_ptr<Workload> make_workload(Communicator& communicator, const BenchOptions& options,
                                        std::uint64_t bytes, const CallOptions& call) {
  if (options.what == "barrier") return std::make_unique<Barrier>(communicator);
  if (options.what == "gather") {
    return std::make_unique<Gather>(communicator, options, bytes, call);
  }
  if (options.what == "scatter") {
    return std::make_unique<Scatter>(communicator, options, bytes, call);
  }
  if (options.what == "broadcast") {
    return std::make_unique<Broadcast>(communicator, options, bytes, call);
  }
  if (options.what == "alltoall") {
    return std::make_unique<Alltoall>(communicator, options, bytes, call);
  }
  return std::make_unique<Allgather>(communicator, options, bytes, call);
}

}  // namespace allrail::perf
