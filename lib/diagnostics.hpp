// What the programs of this project may see of the library beyond its public API.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <allrail/communicator.hpp>

#include "lib/simulation.hpp"

namespace allrail::diagnostics {

struct AlgorithmInfo {
  std::string name;
  std::string description;
  bool over_nodes = false;
  bool cuts_blocks = false;  // of v-forms: where blocks are of one size it is as another one
};
/// "allgather" first.
ALLRAIL_API std::vector<std::string> collectives();
ALLRAIL_API std::vector<AlgorithmInfo> algorithms_of(const std::string& collective);

/// What a call receives into.
enum class ResultMemory { Ordinary, Buffer, NodeBuffer };

struct Choice {
  std::string algorithm;
  int ports = 1;
  int leaders = 1;
  std::string reason;
};
/// What a call with blocks of these sizes would do on this communicator. An allgatherv goes by the
/// blocks of all ranks, everything else by the largest, of all ranks or pairs. The memory matters
/// to allgathers only. Local.
ALLRAIL_API Choice choose(const Communicator& communicator, const std::string& collective,
                          std::span<const std::size_t> block_bytes, const CallOptions& options = {},
                          ResultMemory memory = ResultMemory::Ordinary);

/// A rail of this process that was or was not taken.
struct RailInfo {
  std::string name;
  std::string state;  // "in use", or why not
  std::string address;
  int speed_mbit = 0;  // 0: not known
  bool in_use = false;
  bool verbs = false;
  std::string hardware{};  // of a verbs port: its MTU, PCI device and NUMA node
};
/// Local: reads the interfaces of this host and the setting ALLRAIL_RAILS.
ALLRAIL_API std::vector<RailInfo> rails_of_this_host(const Options& options);

/// Huge pages for the memory of a node, as this host has them in /dev/shm.
struct HugePageInfo {
  std::uint64_t page_bytes = 0;  // 0: the kernel has none
  std::string mount;             // the mount option huge= of /dev/shm
  std::string kernel;            // the kernel's shmem_enabled
  std::string asks;              // half a sentence: what a segment does about it
  std::uint64_t trial_bytes = 0, trial_huge_bytes = 0;  // of some memory that was made to see
  std::string refusal;                                  // why there was no trial, else empty
};
/// Local: makes two huge pages of memory as a segment does, and gives them back.
ALLRAIL_API HugePageInfo try_huge_pages(const Options& options);

/// Rails, nodes and memory of a running job.
struct JobInfo {
  int ranks = 1, nodes = 1, rails = 0;
  std::vector<int> node_of;
  std::vector<std::vector<std::string>> rail_names;  // by rank
  std::uint64_t segment_bytes = 0, small_slot_bytes = 0, large_slot_bytes = 0;
  int small_slots = 0, large_slots = 0;
};
ALLRAIL_API JobInfo describe_job(const Communicator& communicator);
/// How much of the node's memory, of what this rank has touched, lies in huge pages. Local.
ALLRAIL_API std::uint64_t segment_huge_bytes(const Communicator& communicator);

/// The leaf switches of a running job, by number, and what hangs on them. Empty: not known.
struct LeafInfo {
  std::string name;
  int chassis = -1;          // its number; -1: no chassis is known
  std::string chassis_name;  // empty then
  std::vector<int> nodes;
};
ALLRAIL_API std::vector<LeafInfo> describe_switches(const Communicator& communicator);

/// The node of every rank of an imagined job on one host, by the words of ALLRAIL_NODES.
ALLRAIL_API std::vector<int> imagine_nodes(int ranks, const std::string& spec);

/// The schedule of one rank, one line per step, and its cost by the Hockney model.
struct Explanation {
  Choice choice;
  std::vector<std::string> steps;
  int rounds = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t bytes_sent = 0;  // by this rank over rails
  std::uint64_t slices = 1;
  // The leaf switch of every node and the chassis of every leaf, as the schedules go by them.
  std::vector<int> leaf_of;
  std::vector<int> chassis_of;
  bool reads_peers = false;  // ranks of a node read out of each other's memory
  bool zero_copy = false;
  double cost_us = 0;  // with the start-up time and rate given
  // Of an allgatherv whose blocks are cut: where, and the ranks that have a chain; else none.
  std::uint64_t level_bytes = 0;
  std::vector<int> chains;
};
/// Bytes are those of a rank's block: of a broadcast of the data, of an alltoall of a pair's block.
struct ImaginedCall {
  std::string collective;
  std::uint64_t bytes = 0;
  // Of every rank, of an allgatherv, which has its name above; `bytes` is not looked at then.
  std::vector<std::size_t> block_bytes{};
  int root = -1;  // of a collective that has one
  // The leaf switches of its nodes, where they are known; nodes are numbered as ever.
  std::vector<LeafInfo> leaves{};
  // The job whose ranks these are, and where they run; null: leaders are elected by number.
  const Communicator* job = nullptr;
};
ALLRAIL_API Explanation explain(const ImaginedCall& call, const std::vector<int>& node_of, int rank,
                                int rails, const CallOptions& options, const Options& settings,
                                double startup_us, double rate_bytes_per_us);

/// The tuning file that the settings name.
struct TuningInfo {
  std::string path;                                // empty: there is none
  std::vector<std::pair<std::string, int>> rules;  // how many of each collective that has some
  std::optional<CostModel> model;                  // that is asked where no rule fits
};
/// Reads it. Local. Throws Error{BadConfiguration} as a start of the job would.
ALLRAIL_API TuningInfo describe_tuning(const Options& settings);

/// One rank in the eyes of an election. Unknown numbers are -1.
struct RankLeadership {
  int rank = 0;
  int group = 0;     // whose leader is that of this number
  std::string cpus;  // of an imagined rank
  int domain = -1;   // the NUMA node or socket that it runs in
  int rail_levels = -1;
  std::vector<std::string> rails;       // all it has
  std::vector<std::string> near_rails;  // over which small puts come to it first; empty: all
};
struct NodeLeadership {
  struct Leader {
    int local = 0;  // place among the ranks of the node
    std::string why;
  };
  std::vector<RankLeadership> ranks;
  std::vector<Leader> leaders;  // by number
};
struct LeadershipInfo {
  std::string policy;
  int natural_leaders = 1;             // what sockets and rails call for
  std::uint64_t bytes_per_leader = 0;  // of a node's contribution, for one more of these
  int lanes = 1;                       // leaders shown, the same on all nodes
  std::vector<NodeLeadership> nodes;
};
/// Nodes that all are the machine of a file that lstopo wrote, or (empty) of this host.
struct ImaginedNodes {
  std::string topology_file;
  std::vector<std::string> rails;  // devices as lstopo names them; empty: all RDMA devices
  int ranks = 0;                   // in all, each bound to a core; 0: one per core
  std::string nodes;               // in the words of ALLRAIL_NODES
};
/// With `leaders` 0: as many as the setting says, else as are called for. Local.
ALLRAIL_API LeadershipInfo explain_leaders(const Communicator& communicator, int leaders);
ALLRAIL_API LeadershipInfo imagine_leaders(const ImaginedNodes& nodes, const Options& settings,
                                           int leaders);

/// Notified puts between two ranks of different nodes, without a collective: for
/// `allrail-bench put`. No collective call may be made while one of these is alive.
class ALLRAIL_API PutPair {
 public:
  /// For both ranks of the pair; `bytes` is the largest put. Other ranks may stay away.
  PutPair(Communicator& communicator, int peer, std::uint64_t bytes);
  ~PutPair();
  PutPair(const PutPair&) = delete;
  PutPair& operator=(const PutPair&) = delete;

  /// The rails, of the lower of the two ranks, that have a partner.
  std::vector<int> rails() const;
  /// Queues one put out of registered memory, over the pair of one rail of the lower rank or (-1)
  /// striped over all.
  void put(std::uint64_t bytes, int rail);
  void await(std::uint64_t bytes);  ///< until the next put of the peer has arrived
  void flush();                     ///< until all my puts are delivered

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace allrail::diagnostics
