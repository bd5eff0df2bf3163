#include "perf/workload.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lib/diagnostics.hpp"
#include "perf/blocks.hpp"
#include "perf/pattern.hpp"
#include "perf/workload_buffers.hpp"

namespace allrail::perf {
namespace {

constexpr std::byte kStale{0xA5};

class Allgather : public TwoBuffers {
 public:
  explicit Allgather(const Given& given) : TwoBuffers(given, given.mine(), given.blocks.total()) {}

  void call() override { communicator_.allgather(source(), receive_, call_); }
  Plan plan() override { return communicator_.plan_allgather(source(), receive_, call_); }
  bool ranks_end_alike() const override { return true; }
  void prepare(std::uint64_t seed) override {
    // What a node shares is written by one rank of it, and by none that is ahead of others.
    const bool is_shared = options_.memory == BenchOptions::Memory::Node;
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
  std::uint64_t rail_bytes() const override { return bytes_elsewhere(); }

 protected:
  std::uint64_t bus_bytes() const override {
    return blocks_.total() - std::ranges::min(blocks_.counts());
  }
  Bytes source() const { return options_.in_place ? block(receive_, rank_) : send_; }
};

class Allgatherv final : public Allgather {
 public:
  using Allgather::Allgather;

  void call() override { communicator_.allgatherv(source(), receive_, blocks_.counts(), call_); }
  Plan plan() override {
    return communicator_.plan_allgatherv(source(), receive_, blocks_.counts(), call_);
  }
  // Who has most of the bytes awaits few, and is done early.
  bool ranks_end_alike() const override { return options_.blocks == BlockShape::Even; }
};

class Gather : public TwoBuffers {
 public:
  explicit Gather(const Given& given) : TwoBuffers(given, given.mine(), given.all_at_root()) {}

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
  std::uint64_t rail_bytes() const override { return is_root() ? bytes_elsewhere() : 0; }

 protected:
  std::uint64_t bus_bytes() const override {
    return blocks_.total() - blocks_.bytes(static_cast<std::size_t>(options_.root));
  }
  Bytes source() const { return options_.in_place && is_root() ? block(receive_, rank_) : send_; }
};

class Gatherv final : public Gather {
 public:
  using Gather::Gather;

  void call() override {
    communicator_.gatherv(source(), receive_, blocks_.counts(), options_.root, call_);
  }
  Plan plan() override {
    return communicator_.plan_gatherv(source(), receive_, blocks_.counts(), options_.root, call_);
  }
};

class Scatter : public TwoBuffers {
 public:
  explicit Scatter(const Given& given) : TwoBuffers(given, given.all_at_root(), given.mine()) {}

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
  std::uint64_t rail_bytes() const override { return is_root() ? bytes_elsewhere() : 0; }

 protected:
  std::uint64_t bus_bytes() const override {
    return blocks_.total() - blocks_.bytes(static_cast<std::size_t>(options_.root));
  }
  Bytes target() const { return options_.in_place && is_root() ? block(send_, rank_) : receive_; }
};

class Scatterv final : public Scatter {
 public:
  using Scatter::Scatter;

  void call() override {
    communicator_.scatterv(send_, target(), blocks_.counts(), options_.root, call_);
  }
  Plan plan() override {
    return communicator_.plan_scatterv(send_, target(), blocks_.counts(), options_.root, call_);
  }
};

class Broadcast final : public TwoBuffers {
 public:
  explicit Broadcast(const Given& given) : TwoBuffers(given, 0, given.blocks.total()) {}

  void call() override { communicator_.broadcast(receive_, options_.root, call_); }
  Plan plan() override { return communicator_.plan_broadcast(receive_, options_.root, call_); }
  void prepare(std::uint64_t seed) override {
    std::ranges::fill(receive_, kStale);
    if (is_root()) fill_pattern(receive_, 0, seed);
  }
  std::uint64_t wrong(std::uint64_t seed) override { return wrong_bytes(receive_, 0, seed); }
  std::uint64_t rail_bytes() const override {
    return communicator_.node_count() > 1 ? blocks_.total() : 0;
  }

 protected:
  std::uint64_t bus_bytes() const override { return blocks_.total(); }
};

class Alltoall : public TwoBuffers {
 public:
  explicit Alltoall(const Given& given)
      : TwoBuffers(given, given.blocks.total(), given.blocks.total()) {}

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
  /// As much leaves a node as comes to it.
  std::uint64_t rail_bytes() const override {
    const std::vector<int> nodes = diagnostics::describe_job(communicator_).node_of;
    std::uint64_t bytes = 0;
    for (std::size_t from = 0; from < nodes.size(); ++from) {
      if (nodes[from] != communicator_.node()) continue;
      for (std::size_t to = 0; to < nodes.size(); ++to) {
        if (nodes[to] != communicator_.node()) bytes += pair_bytes(from, to);
      }
    }
    return bytes;
  }

 protected:
  std::uint64_t bus_bytes() const override {
    std::uint64_t least = blocks_.total();
    for (std::uint64_t rank = 0; rank < ranks_; ++rank) {
      least = std::min(least, pair_bytes(rank, rank));
    }
    return blocks_.total() - least;
  }
  Bytes source() const { return options_.in_place ? receive_ : send_; }

 private:
  /// Of any two ranks, from the blocks of this one: see blocks_of_pairs().
  std::uint64_t pair_bytes(std::uint64_t from, std::uint64_t to) const {
    return blocks_.bytes((from + to + ranks_ - rank_) % ranks_);
  }
};

class Alltoallv final : public Alltoall {
 public:
  using Alltoall::Alltoall;

  void call() override {
    communicator_.alltoallv(source(), receive_, blocks_.counts(), blocks_.counts(), call_);
  }
  Plan plan() override {
    return communicator_.plan_alltoallv(source(), receive_, blocks_.counts(), blocks_.counts(),
                                        call_);
  }
};

class Barrier final : public Workload {
 public:
  explicit Barrier(Communicator& communicator) : communicator_(communicator) {}

  void call() override { communicator_.barrier(); }
  Plan plan() override { return communicator_.plan_barrier(); }
  void prepare(std::uint64_t /*seed*/) override {}
  std::uint64_t wrong(std::uint64_t /*seed*/) override { return 0; }
  std::uint64_t bytes_total() const override { return 0; }
  std::span<const std::size_t> block_bytes() const override { return {}; }
  double bus_factor() const override { return 0; }
  std::uint64_t rail_bytes() const override { return 0; }
  bool can_be_checked() const override { return false; }

 private:
  Communicator& communicator_;
};

/// Bytes are the mean of what the blocks have.
Blocks blocks_for(const Communicator& communicator, const BenchOptions& options,
                  std::uint64_t bytes) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const std::string collective = even_form(options.what);
  if (collective == "broadcast") return blocks_of_ranks(BlockShape::Even, bytes, 1, 0);
  const BlockShape shape = is_v_form(options.what) ? options.blocks : BlockShape::Even;
  if (collective == "alltoall") {
    return blocks_of_pairs(shape, bytes, ranks, static_cast<std::size_t>(communicator.rank()));
  }
  const bool has_root = collective != "allgather";
  const auto root = static_cast<std::size_t>(has_root ? options.root : 0);
  return blocks_of_ranks(shape, bytes, ranks, single_owner(root, ranks));
}

template <class AnyWorkload>
std::unique_ptr<Workload> make(const Given& given) {
  return std::make_unique<AnyWorkload>(given);
}

constexpr struct {
  std::string_view what;
  std::unique_ptr<Workload> (*make)(const Given& given);
} kWorkloads[] = {
    {"allgather", make<Allgather>}, {"allgatherv", make<Allgatherv>},
    {"gather", make<Gather>},       {"gatherv", make<Gatherv>},
    {"scatter", make<Scatter>},     {"scatterv", make<Scatterv>},
    {"broadcast", make<Broadcast>}, {"alltoall", make<Alltoall>},
    {"alltoallv", make<Alltoallv>},
};

}  // namespace

std::unique_ptr<Workload> make_workload(Communicator& communicator, const BenchOptions& options,
                                        std::uint64_t bytes, const CallOptions& call) {
  if (options.what == "barrier") return std::make_unique<Barrier>(communicator);
  const auto* const found =
      std::ranges::find(kWorkloads, options.what, [](const auto& row) { return row.what; });
  return found->make({communicator, options, call, blocks_for(communicator, options, bytes)});
}

}  // namespace allrail::perf
