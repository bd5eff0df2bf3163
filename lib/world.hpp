// Everything behind a Communicator: start-up joins the layers here, and each call passes through.
// The first one of a job starts over PMIx (world_start.cpp), those that are split off it over calls
// of the one that they come from (split.cpp).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "coll/engine.hpp"
#include "coll/envelopes.hpp"
#include "coll/selection.hpp"
#include "coll/team.hpp"
#include "include/allrail/communicator.hpp"
#include "lib/buffer_table.hpp"
#include "lib/card.hpp"
#include "lib/entry_gate.hpp"
#include "lib/expected_counts.hpp"
#include "lib/job.hpp"
#include "lib/job_memory.hpp"
#include "lib/model_choice.hpp"
#include "lib/node_control.hpp"
#include "lib/plan_cache.hpp"
#include "lib/rail_directory.hpp"
#include "lib/rails.hpp"
#include "lib/select.hpp"
#include "lib/switch_place.hpp"
#include "lib/topology/topology.hpp"
#include "lib/tuning_file.hpp"
#include "lib/user_plan.hpp"
#include "shm/liveness.hpp"
#include "shm/peer_reader.hpp"
#include "shm/segment.hpp"
#include "transport/control/control_plane.hpp"
#include "transport/fabric.hpp"

namespace allrail {

/// Whose an allocation is: of every rank its own, or of a node.
enum class MemoryOwner : std::uint64_t { Rank = 0, Node = 1 };

class World final : public coll::TeamEvents {
 public:
  explicit World(const Options& options);
  ~World() override;

  const coll::Team& team() const { return team_; }
  const coll::Roster& roster() const { return roster_; }
  const Options& options() const { return options_; }
  const RailDirectory& directory() const { return directory_; }
  /// By the numbers that the switches of the roster have.
  const SwitchNames& switch_names() const { return switch_names_; }
  /// What the fabric needs to connect to this rank.
  transport::PeerRails rails_of(int peer) override;
  const shm::SegmentLayout& segment_layout() const { return segment_.layout(); }
  std::span<const std::byte> segment_memory() const { return segment_.bytes(); }
  transport::Fabric* fabric() { return fabric_.get(); }
  EntryGate& gate() { return job_->gate; }
  const coll::SlotGeometry& geometry() const { return geometry_; }
  /// Rails that every rank of the job has: schedules depend on it.
  int rail_count() const { return fabric_ ? job_rails_ : 0; }

  void barrier(std::chrono::milliseconds timeout);
  void allgather(std::span<const std::byte> send, std::span<std::byte> receive,
                 const CallOptions& options);
  void allgatherv(std::span<const std::byte> send, std::span<std::byte> receive,
                  std::span<const std::size_t> counts, std::span<const std::size_t> displacements,
                  std::size_t element_bytes, const CallOptions& options);
  /// Plans of the public API: what Plan and its makers say.
  std::shared_ptr<UserPlan> plan_allgather(std::span<const std::byte> send,
                                           std::span<std::byte> receive,
                                           const CallOptions& options);
  std::shared_ptr<UserPlan> plan_allgatherv(std::span<const std::byte> send,
                                            std::span<std::byte> receive,
                                            std::span<const std::size_t> counts,
                                            std::span<const std::size_t> displacements,
                                            std::size_t element_bytes, const CallOptions& options);
  std::shared_ptr<UserPlan> plan_barrier(const CallOptions& options);
  /// The other collectives, blocking and as plans.
  void call(const CollectiveCall& call, const CallOptions& options);
  std::shared_ptr<UserPlan> plan(const CollectiveCall& call, const CallOptions& options);
  void start(UserPlan& plan);
  bool test(UserPlan& plan);
  void wait(UserPlan& plan);
  void drop(UserPlan& plan) noexcept;
  BufferMemory allocate(std::size_t count, std::size_t element_bytes, MemoryOwner owner);
  std::vector<RailStatistics> rail_statistics();
  /// What Communicator::split() says; null for a negative color.
  std::unique_ptr<World> split(int color, int key);

  /// What a call with these blocks would do, see diagnostics::choose().
  coll::Selection select(coll::Operation operation, std::span<const std::size_t> block_bytes,
                         const CallOptions& options, coll::MemoryKind memory) const;

 private:
  class Allocation;  // allocate.cpp
  class Splitting;   // split.cpp

  /// One that `parent` is split into: its ranks, by their numbers there. Not started.
  World(const World& parent, std::string name, const std::vector<int>& ranks);

  static std::uint64_t hash_text(const std::string& text);
  void read_tuning();
  void make_rails();
  void make_control_listener(const RailChoices& choices);
  void prepare_or_tell(Card& mine, bool needs_rails);
  void cannot_start(Card& mine, Code code, const char* text);
  std::unique_ptr<transport::Rail> make_tcp_rail(const RailChoice& choice, int index,
                                                 const RailChoices& choices);
  std::unique_ptr<transport::Rail> make_verbs_rail(const RailChoice& choice, int index,
                                                   const RailChoices& choices);
  // The cards are there for the start only; what stays of them is in the roster and, once per node,
  // in the directory.
  void fill_in(Card& mine);
  std::vector<Card> take_cards(const std::vector<std::vector<std::byte>>& blobs, const Card& mine);
  void find_place(const topology::Machine& cores);
  void adopt_nodes(const std::vector<Card>& cards, const schedule::NodeMap& map,
                   std::uint64_t node_memory_bytes);
  void find_switch_or_tell(Card& mine);
  /// Of this rank's node, as the job has found it.
  SwitchPlace switch_place() const;
  void adopt_switches(const std::vector<Card>& cards);
  void watch_node(const std::vector<Card>& cards);
  void make_segment(const std::vector<Card>& cards);
  // Its parts: what the first rank of a node does, the others, and all of them behind that.
  std::string segment_name(const std::vector<Card>& cards) const;
  void create_segment(const std::vector<Card>& cards);
  void attach_segment(const std::vector<Card>& cards);
  void enter_segment();
  /// Where the lanes of this node's leaders should lie.
  std::vector<shm::MemoryPart> lane_memory(const std::vector<Card>& cards) const;
  int ended_outside() const;
  void await_attached(const std::vector<Card>& cards);
  void start_fabric();
  void find_outnumbered(const topology::Machine& cores, const std::vector<Card>& cards);
  void find_home(const topology::Machine& cores, const std::vector<Card>& cards);
  void start_engine(const std::vector<Card>& cards);
  /// From here on the other communicators of this process go on while this one waits, and end with
  /// it: so it has to be sure that every rank has one.
  void join_job();
  void start_helper();
  void agree_on_reading(const std::vector<Card>& cards);
  void find_out_reading(const std::vector<Card>& cards);
  void time_single_copy(coll::SingleCopyTrial& trial, const CallOptions& limit);
  std::uint64_t find_single_copy_threshold(const CallOptions& limit);
  void start_control_plane(const std::vector<Card>& cards);
  void abort_set() override;

  // What a call says, once its arguments are found to be right.
  PlanKey allgather_key(std::span<const std::byte> send, std::span<std::byte> receive,
                        const CallOptions& options);
  static PlanKey allgather_key(std::uint64_t bytes, coll::MemoryKind memory, bool send_is_mapped,
                               const CallOptions& options);
  PlanKey allgatherv_key(std::span<const std::byte> send, std::span<std::byte> receive,
                         std::span<const std::size_t> counts,
                         std::span<const std::size_t> displacements, std::size_t element_bytes,
                         const CallOptions& options);
  // The same for the other collectives (world_rooted.cpp).
  struct Ready {
    PlanKey key;
    coll::Buffers buffers;
  };
  Ready ready(const CollectiveCall& call, const CallOptions& options);
  Ready ready_rooted(const CollectiveCall& call, const CallOptions& options);
  static PlanKey key_of(coll::Operation operation, const CallOptions& options);
  static coll::Operation operation_of(CollectiveCall::Kind kind);
  static coll::Buffers plain_buffers(const CollectiveCall& call);
  static bool must_copy(const coll::CallPlan& plan, const coll::Buffers& buffers);
  std::vector<std::byte> copy_if_needed(const coll::CallPlan& plan, coll::Buffers& buffers);
  void check_root(int root);
  void check_memory(std::span<const std::byte> one, std::span<const std::byte> other);
  void check_blocks(std::span<const std::byte> mine, std::span<const std::byte> all,
                    std::uint64_t offset);
  /// As many as there are counts, or none.
  void check_places(std::span<const std::size_t> counts,
                    std::span<const std::size_t> displacements);
  std::vector<coll::PlacedBlock> blocks_of(std::span<const std::size_t> counts,
                                           std::span<const std::size_t> displacements,
                                           std::size_t element_bytes);
  void check_inside(const std::vector<coll::PlacedBlock>& blocks, std::uint64_t buffer_bytes,
                    bool may_overlap);
  // Of alltoallvs (world_alltoallv.cpp).
  struct PairBlocks {
    std::vector<coll::PlacedBlock> sent;     // by the rank that they are for
    std::vector<coll::PlacedBlock> awaited;  // by the rank that they come from
  };
  void alltoallv(const CollectiveCall& call, const CallOptions& options);
  std::shared_ptr<UserPlan> plan_alltoallv(const CollectiveCall& call, const CallOptions& options);
  PairBlocks pair_blocks(const CollectiveCall& call);
  void check_in_place(const CollectiveCall& call, const PairBlocks& blocks);
  /// Collective.
  coll::PlanRequest exchange_counts(const PairBlocks& blocks, base::Deadline deadline);
  /// The counts of a pair are the same at both ends.
  void check_pair(int from, int to, std::uint64_t sent_bytes, std::uint64_t awaited_bytes);
  bool go_by_expected_counts(const CollectiveCall& call, const PairBlocks& blocks,
                             const CallOptions& options, base::Deadline deadline);
  void check_envelopes(const PairBlocks& blocks);
  bool prepare_envelopes(const CallOptions& options);
  coll::PlanRequest lay_out_envelopes();
  /// What lies in Buffers is found by address.
  coll::MemoryKind kind_of(std::span<const std::byte> receive) const noexcept;
  /// Whether the ranks of my node can read what a call into such memory sends.
  bool is_mapped_for(coll::MemoryKind kind, std::span<const std::byte> send) const noexcept;
  coll::Buffers buffers_of(std::span<const std::byte> send, std::span<std::byte> receive,
                           const PlanKey& key) const;
  /// What was found out of the arguments of an allgather. The next one mostly has the same.
  struct LastAllgather {
    std::span<const std::byte> send;
    std::span<std::byte> receive;
    std::uint64_t version = UINT64_MAX;  // of the buffer table at the time; this one never is
    coll::MemoryKind memory = coll::MemoryKind::Ordinary;
    bool send_is_mapped = false;
    coll::Buffers buffers;
    bool is(std::span<const std::byte> its_send, std::span<std::byte> its_receive,
            std::uint64_t its_version) const noexcept {
      return send.data() == its_send.data() && send.size() == its_send.size() &&
             receive.data() == its_receive.data() && receive.size() == its_receive.size() &&
             version == its_version;
    }
  };
  static base::Deadline deadline_of(std::chrono::milliseconds timeout) {
    return timeout.count() > 0 ? base::Deadline::after(timeout) : base::Deadline::never();
  }
  base::Deadline deadline_of(const CallOptions& options) const {
    return deadline_of(options.timeout.count() > 0 ? options.timeout : options_.timeout);
  }
  /// Where memory is missing for what a call needs here, with buffers of so many bytes, the others
  /// are told, so that they do not wait for this rank. The one place for it: whatever is made on
  /// the way to the engine is made in here.
  template <class Work>
  decltype(auto) or_die(coll::Operation operation, std::uint64_t bytes, const Work& work) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      engine_->die_without_memory(operation, bytes);
    }
  }
  /// The same of a call whose buffers the plan has.
  template <class Work>
  void or_die(const UserPlan& plan, const Work& work) {
    const coll::Buffers& buffers = plan.run.buffers;
    or_die(plan.plan->description().operation, buffers.send_bytes + buffers.receive_bytes, work);
  }
  /// What the user calls: inside the gate of a communicator that lives.
  template <class Work>
  decltype(auto) enter(coll::Operation operation, std::uint64_t bytes, const Work& work) {
    const EntryGuard guard(job_->gate);
    return or_die(operation, bytes, [this, &work]() -> decltype(auto) {
      engine_->throw_if_dead();
      return work();
    });
  }
  /// Memory of a Buffer, of whichever communicator, ends: plans that run with it are ended as if
  /// they were destroyed.
  void let_go(std::span<const std::byte> memory) noexcept;
  Choosers choosers(transport::Pace pace) const {
    return {options_, tuning_.rules, model_choice_.get(), pace};
  }
  transport::Pace pace() const { return engine_->agreed_pace(); }
  /// Plans of calls that say the same differ with what the table depends on beside the call.
  PlanCache& plans() { return plans_[static_cast<std::size_t>(pace())]; }
  const coll::CallPlan& plan_for(const PlanKey& key, const CallOptions& options);
  std::unique_ptr<coll::CallPlan> make_connected_plan(const PlanKey& key,
                                                      const CallOptions& options);
  std::unique_ptr<coll::CallPlan> make_connected_plan(coll::PlanRequest request,
                                                      const CallOptions& options,
                                                      transport::Pace pace);
  coll::PlanRequest request_of(const PlanKey& key) const;
  coll::Selection choose(const coll::PlanRequest& request, const CallOptions& options,
                         transport::Pace pace) const;
  std::unique_ptr<coll::CallPlan> make_plan(coll::PlanRequest request, const CallOptions& options,
                                            transport::Pace pace) const;
  void run(const coll::CallPlan& plan, const coll::Buffers& buffers, const CallOptions& options);
  /// An allgather of a few bytes that Allrail itself needs.
  void exchange(std::span<const std::byte> send, std::span<std::byte> receive,
                base::Deadline deadline, coll::Operation operation);
  void exchange(std::span<const std::byte> send, std::span<std::byte> receive,
                const CallOptions& options = {},
                coll::Operation operation = coll::Operation::Allocate) {
    exchange(send, receive, deadline_of(options), operation);
  }
  [[noreturn]] void reject(const std::string& text);
  void remember_allgather(std::span<const std::byte> send, std::span<std::byte> receive,
                          const CallOptions& options);
  void check_allgather(std::span<const std::byte> send, std::span<std::byte> receive,
                       std::uint64_t expected_bytes, std::uint64_t my_offset);
  std::shared_ptr<UserPlan> make_user_plan(const PlanKey& key, const coll::Buffers& buffers,
                                           const CallOptions& options);
  std::shared_ptr<UserPlan> make_user_plan(std::unique_ptr<coll::CallPlan> plan,
                                           const coll::Buffers& buffers,
                                           const CallOptions& options);
  static void check_started(const UserPlan& plan);
  [[noreturn]] void reject_start(const UserPlan& plan);
  void follow_pace(UserPlan& plan);
  void drop_all_plans() noexcept;
  void print_summary();
  std::vector<RailStatistics> read_counters() const;

  Options options_;
  TuningFile tuning_;
  std::shared_ptr<Job> job_;
  bool is_first_ = true;        // of the job; else it was split off
  int ranks_ = 1;               // team_.rank is the own one
  std::uint64_t job_hash_ = 0;  // what its connections are told by from those of others
  std::uint64_t identity_ = 0;  // of the communicator: the same on its ranks, different in a job
  std::uint64_t splits_ = 0;    // made so far
  std::string cpuset_;          // of this process, and its place
  topology::RankPlace place_;
  std::vector<std::unique_ptr<transport::Rail>> rails_made_;  // until the fabric takes them
  transport::ControlOptions control_options_;
  std::unique_ptr<transport::ControlListener> control_listener_;  // until the control plane has it
  std::vector<transport::RailEnd> rail_ends_;                     // of the rails made
  std::vector<std::string> rail_devices_;                         // of the same, as hwloc has them
  std::vector<transport::WantedPair> wanted_pairs_;
  int job_rails_ = 0;
  topology::LeaderPolicy leader_policy_ = topology::LeaderPolicy::Near;
  coll::Roster roster_;
  std::unique_ptr<ModelChoice> model_choice_;  // null: the tuning file has no model
  SwitchNames switch_names_;
  std::vector<shm::SegmentLayout> layouts_;  // by node size
  coll::SlotGeometry geometry_;
  JobMemory memory_;
  bool verbs_rails_ = false;
  bool warned_of_copying_ = false;
  bool warned_of_buffers_ = false;
  std::uint64_t allocations_ = 0;   // made so far
  std::uint64_t node_buffers_ = 0;  // of them
  shm::NodeSegment segment_;
  RailDirectory directory_;
  shm::PeerWatch watch_;
  bool outnumbered_ = false;    // the cores of this host, by ranks
  bool shares_cores_ = false;   // of a single node: some rank finds that ranks outnumber cores
  bool reads_buffers_ = false;  // of other ranks: on a single node
  std::optional<shm::PeerReader> reader_;  // none where reading each other's memory is not allowed
  std::uint64_t single_copy_threshold_bytes_ = 0;  // from which blocks on it is; 0: not settled
  std::unique_ptr<transport::Fabric> fabric_;
  coll::Team team_;
  std::unique_ptr<coll::Engine> engine_;
  PlanCache plans_[transport::kPaces];            // see plans()
  std::unique_ptr<coll::CallPlan> barrier_plan_;  // once there was a barrier
  std::vector<std::shared_ptr<UserPlan>> user_plans_;
  std::unique_ptr<NodeControl> node_control_;
  std::unique_ptr<transport::ControlPlane> control_;  // on the first rank of each node
  std::shared_ptr<BufferTable> buffers_;              // with all Buffers that live
  LastAllgather last_allgather_;
  ExpectedCounts expected_counts_;
  coll::Envelopes envelopes_;
  struct EnvelopesPlan {
    std::unique_ptr<coll::CallPlan> plan;
    // What it was made of.
    std::uint64_t version = 0;
    std::uint64_t longest_bytes = 0;
    using Choice = std::tuple<std::string, int, int>;  // algorithm, ports, leaders
    Choice asked;
    Choice chosen;
  };
  EnvelopesPlan envelopes_plan_;
};

}  // namespace allrail
