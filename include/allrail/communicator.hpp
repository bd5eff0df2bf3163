// The ranks of a job, and their collective calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <allrail/buffer.hpp>
#include <allrail/collective_call.hpp>
#include <allrail/error.hpp>
#include <allrail/node_buffer.hpp>
#include <allrail/options.hpp>
#include <allrail/plan.hpp>

namespace allrail {

/// How one call is to be done. Equal on all ranks of the call.
struct CallOptions {
  std::string algorithm;  ///< empty: chosen; names are listed by `allrail-bench --list`
  int ports = 0;          ///< 0: the setting, else chosen; for a named algorithm one per rail
  int leaders = 0;        ///< of allgathers and alltoalls, per node; 0: the setting, else chosen
  std::chrono::milliseconds timeout{0};  ///< 0: the setting (ALLRAIL_TIMEOUT), by default none
};

/// Counters of one rail of this process since start-up.
struct RailStatistics {
  std::string name;
  std::uint64_t bytes_sent = 0, bytes_received = 0;
  std::uint64_t chunks_sent = 0, chunks_received = 0;
  std::uint64_t replays = 0;     ///< chunks sent again here after another rail failed
  std::uint64_t fences = 0;      ///< links of this rail that were taken out
  std::uint64_t duplicates = 0;  ///< chunks that arrived twice and were dropped
  std::uint64_t reconnects = 0;
  std::uint64_t registrations = 0;  ///< times that memory of the user was registered
  std::uint64_t window_bytes = 0;   ///< bytes in flight allowed at the last look
  double rate_bytes_per_second = 0;
};

class World;

/// A group of ranks. Move-only. Every rank makes the same collective calls in the same order; one
/// thread at a time may use Allrail in a process. After an error of a collective call
/// the communicator is dead on every rank: later calls throw Error{Aborted} with the first cause.
/// So are, a moment later, all others of the job (see split()).
/// Destruction is local: it finishes what this rank still has to send, within a bound, and tells
/// the others that its leaving is no loss.
class ALLRAIL_API Communicator {
 public:
  /// All ranks of the job, found through PMIx; without a launcher a job of one rank. Collective.
  /// @throws Error{BadConfiguration, Bootstrap, ResourceLimit, Mismatch, PeerLost, Timeout}
  static Communicator world(const Options& options = Options::from_environment());
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  // Not of one that was moved from, whose other calls throw Error{InvalidArgument}.
  int rank() const noexcept;
  int size() const noexcept;
  int node() const noexcept;
  int node_count() const noexcept;
  int node_rank() const noexcept;
  int node_size() const noexcept;

  /// A communicator of the ranks that give the same color, which are numbered by `key` and, where
  /// keys are equal, by their number here; empty for a negative color. Collective: every rank of
  /// this one calls it, also with a negative color. Everything can be done on the new one that can
  /// be done here, as often as one likes, and ranks in what it says and throws are its own. Several
  /// communicators may be used in any order that is the same on the ranks of each of them, with
  /// plans in flight on many at once, as long as no ranks wait for each other in different ones: of
  /// two ranks of a node that is a Mismatch, else nothing but a timeout finds it. Memory that one
  /// of them allocated is ordinary memory for the others, so no two ranks receive there into one
  /// NodeBuffer. They may be destroyed in any order, and an error that ends one of them ends all.
  /// Each has links, and memory of the node, of its own, so a program does not split in a loop.
  /// @throws what world() throws on every rank where one of them cannot start: then nobody has a
  /// new one, and this one can go on; else what allgather() throws.
  [[nodiscard]] std::optional<Communicator> split(int color, int key) const;

  /// Returns when every rank has entered. Collective. `timeout` as in CallOptions.
  /// @throws what allgather() throws.
  void barrier(std::chrono::milliseconds timeout = std::chrono::milliseconds{0});
  /// The same as a plan, whose call has ended when every rank has started it: other work and other
  /// calls may lie in between. Of the options only the timeout counts. All ranks start a plan, or
  /// none: a barrier() of one rank does not match it.
  [[nodiscard]] Plan plan_barrier(const CallOptions& options = {});

  /// Every rank gives `send` (the same length everywhere) and receives all of them in rank order.
  /// Collective; blocks. `recv` holds size() * send.size() elements. In place: `send` is this
  /// rank's block of `recv`; any other overlap is an error. Both are borrowed until return.
  /// @throws Error{InvalidArgument}, mostly before anything is sent, Error{Mismatch, Network,
  /// PeerLost, ResourceLimit, Timeout, Aborted}: with the communicator dead, but where two threads
  /// call at once or it was moved from.
  /// Methods: Qian and Afsahi 2007 and 2008; see docs/algorithms.md.
  template <class Send, class Receive>
  void allgather(const Send& send, Receive&& recv, const CallOptions& options = {}) {
    static_assert(sizeof(ElementOf<Send>) == sizeof(ElementOf<Receive>), "element sizes differ");
    allgather_bytes(calls::read_bytes(send), calls::write_bytes(recv), options);
  }

  /// The same with a block of its own length from every rank: `counts[r]` elements from rank r, the
  /// same counts on all ranks. `recv` holds their sum; blocks follow each other in rank order.
  template <class Send, class Receive>
  void allgatherv(const Send& send, Receive&& recv, std::span<const std::size_t> counts,
                  const CallOptions& options = {}) {
    static_assert(sizeof(ElementOf<Send>) == sizeof(ElementOf<Receive>), "element sizes differ");
    allgatherv_bytes(calls::read_bytes(send), calls::write_bytes(recv), counts, {},
                     sizeof(ElementOf<Send>), options);
  }

  /// The same with displacements: block r begins at element `displacements[r]` of `recv` (none:
  /// blocks follow each other). Blocks may not overlap. All ranks give displacements, which may
  /// differ, or none does.
  template <class Send, class Receive>
  void allgatherv(const Send& send, Receive&& recv, std::span<const std::size_t> counts,
                  std::span<const std::size_t> displacements, const CallOptions& options = {}) {
    static_assert(sizeof(ElementOf<Send>) == sizeof(ElementOf<Receive>), "element sizes differ");
    allgatherv_bytes(calls::read_bytes(send), calls::write_bytes(recv), counts, displacements,
                     sizeof(ElementOf<Send>), options);
  }

  /// The same calls as plans, which are started and tested or waited for; see Plan. Making a plan
  /// is local and starts links to the ranks that it talks to. `counts` and `displacements` are read
  /// now, the buffers are borrowed for the life of the plan.
  /// @throws Error{InvalidArgument} as the calls themselves do.
  template <class Send, class Receive>
  [[nodiscard]] Plan plan_allgather(const Send& send, Receive&& recv,
                                    const CallOptions& options = {}) {
    static_assert(sizeof(ElementOf<Send>) == sizeof(ElementOf<Receive>), "element sizes differ");
    return plan_allgather_bytes(calls::read_bytes(send), calls::write_bytes(recv), options);
  }
  template <class Send, class Receive>
  [[nodiscard]] Plan plan_allgatherv(const Send& send, Receive&& recv,
                                     std::span<const std::size_t> counts,
                                     const CallOptions& options = {}) {
    static_assert(sizeof(ElementOf<Send>) == sizeof(ElementOf<Receive>), "element sizes differ");
    return plan_allgatherv_bytes(calls::read_bytes(send), calls::write_bytes(recv), counts, {},
                                 sizeof(ElementOf<Send>), options);
  }
  template <class Send, class Receive>
  [[nodiscard]] Plan plan_allgatherv(const Send& send, Receive&& recv,
                                     std::span<const std::size_t> counts,
                                     std::span<const std::size_t> displacements,
                                     const CallOptions& options = {}) {
    static_assert(sizeof(ElementOf<Send>) == sizeof(ElementOf<Receive>), "element sizes differ");
    return plan_allgatherv_bytes(calls::read_bytes(send), calls::write_bytes(recv), counts,
                                 displacements, sizeof(ElementOf<Send>), options);
  }

  /// Every rank gives `send` (the same length everywhere), and `root` receives all of them in rank
  /// order: its `recv` holds size() * send.size() elements, that of others is not used. In place:
  /// `send` of the root is its block of `recv`. Collective; blocks until this rank's part is done,
  /// which at other ranks than the root may be before the root has it. Buffers are borrowed until
  /// return. The v-form takes a block of its own length from every rank: `counts` are the same on
  /// all ranks, `displacements` (in elements of the root's buffer) are read at the root only.
  /// @throws as allgather() does; Error{InvalidArgument} also for a root that is no rank.
  /// Methods: Qian and Afsahi 2008; see docs/algorithms.md.
  template <class Send, class Receive>
  void gather(const Send& send, Receive&& recv, int root, const CallOptions& options = {}) {
    call(calls::gather_call(send, recv, root), options);
  }
  template <class Send, class Receive>
  void gatherv(const Send& send, Receive&& recv, std::span<const std::size_t> counts, int root,
               const CallOptions& options = {}) {
    call(calls::with_counts(calls::gather_call(send, recv, root), counts, {}), options);
  }
  template <class Send, class Receive>
  void gatherv(const Send& send, Receive&& recv, std::span<const std::size_t> counts,
               std::span<const std::size_t> displacements, int root,
               const CallOptions& options = {}) {
    call(calls::with_counts(calls::gather_call(send, recv, root), counts, displacements), options);
  }

  /// `root` gives a block to every rank: its `send` holds size() * recv.size() elements, that of
  /// others is not used. In place: `recv` of the root is its block of `send`. All else as for
  /// gather(), the other way round.
  template <class Send, class Receive>
  void scatter(const Send& send, Receive&& recv, int root, const CallOptions& options = {}) {
    call(calls::scatter_call(send, recv, root), options);
  }
  template <class Send, class Receive>
  void scatterv(const Send& send, Receive&& recv, std::span<const std::size_t> counts, int root,
                const CallOptions& options = {}) {
    call(calls::with_counts(calls::scatter_call(send, recv, root), counts, {}), options);
  }
  template <class Send, class Receive>
  void scatterv(const Send& send, Receive&& recv, std::span<const std::size_t> counts,
                std::span<const std::size_t> displacements, int root,
                const CallOptions& options = {}) {
    call(calls::with_counts(calls::scatter_call(send, recv, root), counts, displacements), options);
  }

  /// What `root` has in `data` is in `data` of every rank in the end; the same length everywhere.
  /// Collective; blocks until this rank's part is done. Throws as gather() does.
  /// Methods: Qian and Afsahi 2008, Goglin and Moreaud 2011; see docs/algorithms.md.
  template <class Data>
  void broadcast(Data&& data, int root, const CallOptions& options = {}) {
    call(calls::broadcast_call(data, root), options);
  }

  /// Every rank has a block for every rank: block s of `send` goes to rank s, and block r of `recv`
  /// comes from rank r. Both hold size() blocks of one length, the same everywhere. In place: both
  /// are the same buffer. It is copied before where blocks go straight to their peers, as they may
  /// on several nodes from 512 KiB on, from 256 KiB where a node has several ranks. Any other
  /// overlap is an error. Collective; blocks. Throws as allgather() does. Methods: Qian and Afsahi
  /// 2008; see docs/algorithms.md.
  template <class Send, class Receive>
  void alltoall(const Send& send, Receive&& recv, const CallOptions& options = {}) {
    call(calls::alltoall_call(send, recv), options);
  }

  /// The same with blocks of any length: `send_counts[s]` elements go to rank s, `recv_counts[r]`
  /// come from rank r. A rank knows its own counts only, so they are exchanged first, mostly not
  /// where they are those of the call before (docs/decisions/0035). Where the two ends of a pair
  /// disagree there is Error{Mismatch} at both, and at the other ranks in this call or the next.
  /// Displacements (in elements; empty: blocks follow each other) may not make received blocks
  /// overlap. In place: both are the same buffer, and so are the counts and displacements of both
  /// sides at this rank; any other overlap is an error.
  template <class Send, class Receive>
  void alltoallv(const Send& send, Receive&& recv, std::span<const std::size_t> send_counts,
                 std::span<const std::size_t> recv_counts, const CallOptions& options = {}) {
    call(calls::alltoallv_call(send, recv, send_counts, {}, recv_counts, {}), options);
  }
  template <class Send, class Receive>
  void alltoallv(const Send& send, Receive&& recv, std::span<const std::size_t> send_counts,
                 std::span<const std::size_t> send_displacements,
                 std::span<const std::size_t> recv_counts,
                 std::span<const std::size_t> recv_displacements, const CallOptions& options = {}) {
    call(calls::alltoallv_call(send, recv, send_counts, send_displacements, recv_counts,
                               recv_displacements),
         options);
  }

  /// The same calls as plans; see Plan and plan_allgather(). Making a plan is local, except of an
  /// alltoallv, whose counts are exchanged then: that is collective and blocks, and all ranks start
  /// their plans of it where one does, instead of calling alltoallv().
  template <class Send, class Receive>
  [[nodiscard]] Plan plan_gather(const Send& send, Receive&& recv, int root,
                                 const CallOptions& options = {}) {
    return plan(calls::gather_call(send, recv, root), options);
  }
  template <class Send, class Receive>
  [[nodiscard]] Plan plan_gatherv(const Send& send, Receive&& recv,
                                  std::span<const std::size_t> counts, int root,
                                  const CallOptions& options = {}) {
    return plan(calls::with_counts(calls::gather_call(send, recv, root), counts, {}), options);
  }
  template <class Send, class Receive>
  [[nodiscard]] Plan plan_gatherv(const Send& send, Receive&& recv,
                                  std::span<const std::size_t> counts,
                                  std::span<const std::size_t> displacements, int root,
                                  const CallOptions& options = {}) {
    return plan(calls::with_counts(calls::gather_call(send, recv, root), counts, displacements),
                options);
  }
  template <class Send, class Receive>
  [[nodiscard]] Plan plan_scatter(const Send& send, Receive&& recv, int root,
                                  const CallOptions& options = {}) {
    return plan(calls::scatter_call(send, recv, root), options);
  }
  template <class Send, class Receive>
  [[nodiscard]] Plan plan_scatterv(const Send& send, Receive&& recv,
                                   std::span<const std::size_t> counts, int root,
                                   const CallOptions& options = {}) {
    return plan(calls::with_counts(calls::scatter_call(send, recv, root), counts, {}), options);
  }
  template <class Send, class Receive>
  [[nodiscard]] Plan plan_scatterv(const Send& send, Receive&& recv,
                                   std::span<const std::size_t> counts,
                                   std::span<const std::size_t> displacements, int root,
                                   const CallOptions& options = {}) {
    return plan(calls::with_counts(calls::scatter_call(send, recv, root), counts, displacements),
                options);
  }
  template <class Data>
  [[nodiscard]] Plan plan_broadcast(Data&& data, int root, const CallOptions& options = {}) {
    return plan(calls::broadcast_call(data, root), options);
  }
  template <class Send, class Receive>
  [[nodiscard]] Plan plan_alltoall(const Send& send, Receive&& recv,
                                   const CallOptions& options = {}) {
    return plan(calls::alltoall_call(send, recv), options);
  }
  template <class Send, class Receive>
  [[nodiscard]] Plan plan_alltoallv(const Send& send, Receive&& recv,
                                    std::span<const std::size_t> send_counts,
                                    std::span<const std::size_t> recv_counts,
                                    const CallOptions& options = {}) {
    return plan(calls::alltoallv_call(send, recv, send_counts, {}, recv_counts, {}), options);
  }
  template <class Send, class Receive>
  [[nodiscard]] Plan plan_alltoallv(const Send& send, Receive&& recv,
                                    std::span<const std::size_t> send_counts,
                                    std::span<const std::size_t> send_displacements,
                                    std::span<const std::size_t> recv_counts,
                                    std::span<const std::size_t> recv_displacements,
                                    const CallOptions& options = {}) {
    return plan(calls::alltoallv_call(send, recv, send_counts, send_displacements, recv_counts,
                                      recv_displacements),
                options);
  }

  /// Memory for `count` elements of this rank, registered with every rail once for its life. Calls
  /// and plans that receive into it (or into a part of it) do not register it, and blocks go
  /// straight into it from smaller ones on. Collective; ranks may ask for different counts. Where a
  /// rank may not lock so much memory (ulimit -l), the new Buffers of all ranks are treated as
  /// ordinary memory, with one warning.
  /// @throws Error{ResourceLimit} on every rank where one of them does not get its memory; then
  /// nobody keeps anything, and the communicator can go on.
  template <class T>
  Buffer<T> allocate(std::size_t count) {
    return Buffer<T>(allocate_bytes(count, sizeof(T)), count);
  }

  /// Memory for `count` elements on every node, which its ranks share: a result that is received
  /// into it is stored once per node, and nobody copies it out. Collective; all ranks ask for the
  /// same count. See NodeBuffer for what a call into it promises. Where the leader of a node
  /// may not lock so much memory (ulimit -l), calls into it are copied through the memory of the
  /// node, with one warning.
  /// @throws Error{Mismatch} on every rank where the counts differ, with the communicator dead;
  /// Error{ResourceLimit} on every rank where one of them does not get the memory: then nobody
  /// keeps anything, and the communicator can go on.
  template <class T>
  NodeBuffer<T> allocate_node_shared(std::size_t count) {
    return NodeBuffer<T>(allocate_node_shared_bytes(count, sizeof(T)), count);
  }

  /// Counters per rail of this process; empty where the job has one node. Local.
  std::vector<RailStatistics> rail_statistics();

  /// For tools of this project (lib/diagnostics.hpp); no promise is made about what is behind it.
  World& internals() const noexcept { return *world_; }

 private:
  template <class Range>
  using ElementOf = calls::ElementOf<Range>;

  void call(const CollectiveCall& call, const CallOptions& options);
  Plan plan(const CollectiveCall& call, const CallOptions& options);
  void allgather_bytes(std::span<const std::byte> send, std::span<std::byte> recv,
                       const CallOptions& options);
  void allgatherv_bytes(std::span<const std::byte> send, std::span<std::byte> recv,
                        std::span<const std::size_t> counts,
                        std::span<const std::size_t> displacements, std::size_t element_bytes,
                        const CallOptions& options);
  Plan plan_allgather_bytes(std::span<const std::byte> send, std::span<std::byte> recv,
                            const CallOptions& options);
  Plan plan_allgatherv_bytes(std::span<const std::byte> send, std::span<std::byte> recv,
                             std::span<const std::size_t> counts,
                             std::span<const std::size_t> displacements, std::size_t element_bytes,
                             const CallOptions& options);

  BufferMemory allocate_bytes(std::size_t count, std::size_t element_bytes);
  BufferMemory allocate_node_shared_bytes(std::size_t count, std::size_t element_bytes);

  explicit Communicator(std::unique_ptr<World> world);
  World& live() const;
  std::unique_ptr<World> world_;
};

}  // namespace allrail
