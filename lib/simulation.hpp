// What the programs of this project may see of the cost model: parameters in the units of their
// command lines, and the time that a call of an imagined job takes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <allrail/error.hpp>

namespace allrail::diagnostics {

/// Parameters of the model; docs/simulation.md says what each means and how it is measured. Times
/// in microseconds, rates in MB/s (10^6 bytes). The defaults are no system's: a round figure of
/// what an RDMA network of 100 Gbit/s and a node of that time do.
struct CostModel {
  double latency_us = 1.5;
  double message_us = 0.1;
  double post_us = 0.2;
  double arrival_us = 0.2;
  std::vector<double> rail_MBps{12000};  // of every rail of a node
  std::uint64_t stripe_bytes = 16ULL * 1024;
  double copy_MBps = 10000;
  double memory_MBps = 0;  // of a domain, for all who copy there; 0: no limit
  double flag_us = 0.1;
  std::string local_puts = "copy";  // or "rail"
  double hop_us = 0.1;
  std::vector<int> leaf_size;  // nodes of every leaf switch, the last repeats; empty: one switch
  double oversubscription = 1;
  double uplink_MBps = 0;  // of a leaf switch; 0: by oversubscription
  double background = 0;   // share of the uplinks that others use
  int domains = 1;
  int rail_domain = 0;
  double far_share = 1;    // of its rate that a rail has into another domain
  bool own_ports = false;  // every rank has the rails for itself: the k-port model
};

struct ImaginedJobCall {
  std::string collective;
  std::vector<std::string> algorithms;  // names
  std::uint64_t bytes = 0;  // of a rank's block; of a broadcast the data, of an alltoall a pair's
  int root = 0;
  int ports = 1;
  int leaders = 1;
  std::uint64_t broadcast_segment_bytes = 0;  // as Options has it
  // Nodes that are alike, or, where it is not empty, the node of every rank.
  int nodes = 1;
  int ranks_per_node = 1;
  std::vector<int> node_of;
  // The leaf switch of every node, and the chassis of every leaf, which algorithms by topology go
  // by; empty: leaves as the network of the model has them, and no chassis.
  std::vector<int> leaf_of;
  std::vector<int> chassis_of;
};

struct SimulatedCall {
  std::string algorithm;
  double time_us = 0;
  int ranks_evaluated = 0;  // whose actions were evaluated
  std::string evaluation;   // half a sentence: what was evaluated and what approximated
  std::string refusal;      // why there is no time, else empty
};

/// What somebody waits for who asked, or what the first start of a call may take: milliseconds for
/// each algorithm, above which it is refused.
enum class Effort { Patient, Quick };

/// Of every algorithm. Local; runs nothing.
/// @throws Error{InvalidArgument} for a model or a job that cannot be.
ALLRAIL_API std::vector<SimulatedCall> simulate(const ImaginedJobCall& call, const CostModel& model,
                                                Effort effort = Effort::Patient);

/// @throws Error{InvalidArgument} for a model that cannot be.
void check_model(const CostModel& model);

/// visit(name, member) for every parameter, by its name in a file.
template <class Model, class Visit>
void for_parameters(Model& model, const Visit& visit) {
  visit("latency_us", model.latency_us);
  visit("message_us", model.message_us);
  visit("post_us", model.post_us);
  visit("arrival_us", model.arrival_us);
  visit("rail_MBps", model.rail_MBps);
  visit("stripe_bytes", model.stripe_bytes);
  visit("copy_MBps", model.copy_MBps);
  visit("memory_MBps", model.memory_MBps);
  visit("flag_us", model.flag_us);
  visit("local_puts", model.local_puts);
  visit("hop_us", model.hop_us);
  visit("leaf_size", model.leaf_size);
  visit("oversubscription", model.oversubscription);
  visit("uplink_MBps", model.uplink_MBps);
  visit("background", model.background);
  visit("domains", model.domains);
  visit("rail_domain", model.rail_domain);
  visit("far_share", model.far_share);
  visit("own_ports", model.own_ports);
}

}  // namespace allrail::diagnostics
