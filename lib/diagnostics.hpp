// What the programs of this project may see of the library beyond its public API.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <allrail/communicator.hpp>

namespace allrail::diagnostics {

struct AlgorithmInfo {
  std::string name;
  std::string description;
  bool over_nodes = false;
};
ALLRAIL_API std::vector<AlgorithmInfo> allgather_algorithms();

/// What a call receives into.
enum class ResultMemory { Ordinary, Buffer, NodeBuffer };

struct Choice {
  std::string algorithm;
  int ports = 1;
  int leaders = 1;
  std::string reason;
};
/// What an allgather of this size would do on this communicator. Local.
ALLRAIL_API Choice choose_allgather(const Communicator& communicator, std::uint64_t bytes_per_rank,
                                    const CallOptions& options = {},
                                    ResultMemory memory = ResultMemory::Ordinary);

/// A rail of this process that was or was not taken.
struct RailInfo {
  std::string name;
  std::string state;  // "in use", or why not
  std::string address;
  int speed_mbit = 0;  // 0: not known
  bool in_use = false;
  bool verbs = false;
};
/// Local: reads the interfaces of this host and the setting ALLRAIL_RAILS.
ALLRAIL_API std::vector<RailInfo> rails_of_this_host(const Options& options);

/// Rails, nodes and memory of a running job.
struct JobInfo {
  int ranks = 1, nodes = 1, rails = 0;
  std::vector<int> node_of;
  std::vector<std::vector<std::string>> rail_names;  // by rank
  std::uint64_t segment_bytes = 0, small_slot_bytes = 0, large_slot_bytes = 0;
  int small_slots = 0, large_slots = 0;
};
ALLRAIL_API JobInfo describe_job(const Communicator& communicator);

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
  bool zero_copy = false;
  double cost_us = 0;  // with the start-up time and rate given
};
ALLRAIL_API Explanation explain_allgather(const std::vector<int>& node_of, int rank, int rails,
                                          std::uint64_t bytes_per_rank, const CallOptions& options,
                                          const Options& settings, double startup_us,
                                          double rate_bytes_per_us);

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
