// A job in one process: one rank per node, node segments in memory, fabrics over fake rails, and an
// execution per rank. One thread drives them all, so that every run of a test is the same.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coll/execution.hpp"
#include "coll/plan.hpp"
#include "transport/fake/fake_network.hpp"

namespace allrail::coll::testing {

class SmallJob {
 public:
  explicit SmallJob(int ranks);
  ~SmallJob();

  int size() const { return static_cast<int>(ranks_.size()); }
  /// Makes the plan of an allgather of equal blocks on every rank, and the links for it.
  void plan(const std::string& algorithm, std::uint64_t bytes,
            std::uint64_t zero_copy_threshold = UINT64_MAX);
  /// Before plan(): all ranks receive into memory that stays registered, from `offset` bytes on.
  /// `missing` bytes at the end of the result are not in the window.
  void receive_into_buffers(std::uint64_t offset, std::uint64_t missing = 0);
  /// Before plan(): the call is a later slice, which begins there in the result.
  void begin_slice_at(std::uint64_t offset) { slice_offset_ = offset; }
  std::uint64_t registrations(int rank) const;
  /// Starts a call of that plan on one rank; `stamp` tells it from others.
  void start(int rank, std::uint64_t stamp);
  /// Lets all ranks go on until nothing more can happen, or for ten seconds of virtual time.
  void run();
  /// The same for 100 ms of virtual time, whatever there is to wait for.
  void let_time_pass();
  bool done(int rank) const { return at(rank).done; }
  /// Ends the call of a rank that is done.
  void finish(int rank);

  DoneCounts& counts(int rank) { return *at(rank).counts; }
  transport::Fabric& fabric(int rank) { return *at(rank).fabric; }
  const CallMismatch* mismatch(int rank) const { return at(rank).execution->mismatch(); }
  /// The block of `from` in the receive buffer of `rank`.
  std::vector<std::byte> block(int rank, int from) const;
  /// What such a block holds if it arrived, and what the receive buffers hold before a call.
  std::vector<std::byte> sent_by(int from) const;
  static constexpr std::byte kUntouched{0xEE};

 private:
  struct Rank {
    Roster roster;
    shm::NodeSegment segment;
    std::unique_ptr<transport::Fabric> fabric;
    Team team;
    std::unique_ptr<DoneCounts> counts;
    std::unique_ptr<ExecutionContext> context;
    std::unique_ptr<Execution> execution;
    std::unique_ptr<SlotRing> slots;
    std::unique_ptr<CallPlan> plan;
    std::vector<std::byte> send, receive;
    RegistrationBudget budget{UINT64_MAX};
    Registration registration;
    transport::RemoteWindow window;
    std::uint64_t calls = 0;
    bool started = false;
    bool done = false;
  };
  Rank& at(int rank) const { return *ranks_[static_cast<std::size_t>(rank)]; }

  std::unique_ptr<transport::FakeNetwork> network_;
  std::vector<shm::SegmentLayout> layouts_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::uint64_t bytes_ = 0;
  bool in_buffers_ = false;
  std::uint64_t offset_ = 0;        // of the result in the receive buffer
  std::uint64_t slice_offset_ = 0;  // of the slice in the result
  std::uint64_t missing_ = 0;
};

}  // namespace allrail::coll::testing
