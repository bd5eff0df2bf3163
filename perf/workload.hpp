// One collective as the benchmark calls it: its buffers, the call, and what must come out.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include <allrail/communicator.hpp>

#include "perf/bench_options.hpp"

namespace allrail::perf {

/// Every rank has one; all functions but the figures are collective.
class Workload {
 public:
  Workload() = default;
  virtual ~Workload() = default;
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  virtual void call() = 0;
  virtual Plan plan() = 0;
  /// Fills in bytes that only this seed has, and something else where results go.
  virtual void prepare(std::uint64_t seed) = 0;
  /// How many bytes of this rank's result are not those of this seed.
  virtual std::uint64_t wrong(std::uint64_t seed) = 0;

  /// What nccl-tests call the size of the call, and the share of it that crosses the bus.
  virtual std::uint64_t bytes_total() const = 0;
  virtual double bus_factor() const = 0;
  /// What the choice of an algorithm goes by: bytes of the blocks, as the call has them.
  virtual std::span<const std::size_t> block_bytes() const = 0;
  /// What the rails of this rank's node have to carry in the busier direction. Of a gather or
  /// scatter only the root says it, whose node has the most.
  virtual std::uint64_t rail_bytes() const = 0;
  /// False: some ranks only send, or receive first, and are done long before the call is.
  virtual bool ranks_end_alike() const { return false; }
  /// False: it moves no bytes that could be wrong.
  virtual bool can_be_checked() const { return true; }
};

/// `bytes` of every rank, of a v-form in the mean; of a broadcast the data, of an alltoall every
/// pair's block. The communicator, the options and the call options outlive it.
std::unique_ptr<Workload> make_workload(Communicator& communicator, const BenchOptions& options,
                                        std::uint64_t bytes, const CallOptions& call);

}  // namespace allrail::perf
