// The settings of a job, read once from the environment (ALLRAIL_*) or filled in by the program.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include <allrail/error.hpp>

namespace allrail {

/// Immutable once given to Communicator::world(). Every field says its variable, what it allows and
/// what it is by default. Fields marked (equal) must be the same on every rank; a difference is an
/// error at start-up that names both ranks.
struct ALLRAIL_API Options {
  /// ALLRAIL_RAILS: `auto` (the loopback if all ranks are on one host, else RDMA ports, else
  /// interfaces), `verbs`, `tcp`, or a list such as `mlx5_0:1,mlx5_1:1`, `eth0,eth1` or
  /// `127.0.0.1,127.0.0.2`; `^eth2` takes all but that one.
  std::string rails = "auto";
  /// ALLRAIL_RAIL_PAIRS (equal): which rails of two hosts are the two ends of a link, either way
  /// round, by name or by place in ALLRAIL_RAILS, such as `eth0=eth1,eth1=eth0` or `0=1,1=0`.
  /// Empty: by subnet, then by order, and by what answers.
  std::string rail_pairs;
  /// ALLRAIL_GID_INDEX: of RoCE ports; -1: chosen (RoCE v2 with IPv4, then global IPv6).
  int gid_index = -1;
  /// ALLRAIL_CONNECT (equal): how links between RDMA ports are made: `auto` (by librdmacm where
  /// both ports have an IP address, else directly), `cm`, `direct`.
  std::string connect = "auto";
  /// ALLRAIL_NODES (equal): virtual nodes per host. Empty: one. `4`: four blocks of ranks; `3+1+2`:
  /// blocks of these sizes; `cyclic:4`: rank i on node i mod 4; `0,1,0,2`: the node of each rank.
  std::string nodes;
  /// ALLRAIL_SWITCH_MAP: on which leaf switch every host hangs, for gathers and scatters by
  /// `topology`: a file, of our JSON form or as ibnetdiscover prints it, or `ibnetdiscover`, which
  /// is run. Empty: what the launcher says, or nothing.
  std::string switch_map;
  /// ALLRAIL_TIMEOUT: bound of every call, such as `30`, `1.5s` or `500ms`; 0: none.
  std::chrono::milliseconds timeout{0};
  /// ALLRAIL_BOOTSTRAP_TIMEOUT: bound of every step of start-up, and of connecting, 60 s.
  std::chrono::milliseconds bootstrap_timeout{60'000};
  /// ALLRAIL_PORTS (equal): peers that an algorithm step sends to at once, 1 to 64; 0: chosen
  /// with the algorithm, or one for every rail where a call or a setting names that.
  int ports = 0;
  /// ALLRAIL_LEADERS (equal): ranks per node that talk over rails, 1 to 64; 0: chosen.
  int leaders = 0;
  /// ALLRAIL_LEADER_POLICY (equal): `near` (near the rails), `socket` (one per NUMA domain or
  /// socket) or `packed` (all in one of them): which ranks those are.
  std::string leader_policy = "near";
  /// ALLRAIL_ALGORITHM_<COLLECTIVE> (equal): by collective in lower case, such as "allgather".
  std::map<std::string, std::string> algorithms;
  /// ALLRAIL_TUNING_FILE (equal in its contents): a JSON file of rules that choose algorithms, see
  /// docs/tuning.md; they are asked after `algorithms` and before the built-in table. Empty: none.
  std::string tuning_file;
  /// ALLRAIL_STRIPE_THRESHOLD (equal): puts up to this many bytes travel whole on one rail.
  std::size_t stripe_threshold_bytes = 16ULL * 1024;
  /// ALLRAIL_CHUNK (equal): bytes that rails carry at once, 4K to 8M; 0: chosen from the size.
  std::size_t chunk_bytes = 0;
  /// ALLRAIL_BROADCAST_SEGMENT (equal): bytes of the pieces in which a chain passes data on,
  /// 1K to 1G, but never more than 64 of them; 0: chosen from the size and the number of nodes.
  std::size_t broadcast_segment_bytes = 0;
  /// ALLRAIL_NODE_MEMORY (equal): shared memory of a node, at least 1M. Lowered by itself where
  /// /dev/shm is small.
  std::size_t node_memory_bytes = 64ULL * 1024 * 1024;
  /// ALLRAIL_HUGE_PAGES: huge pages for that memory: `auto` (where the mount of /dev/shm gives
  /// them), `on` (also where the kernel joins small ones on demand), `off`.
  std::string huge_pages = "auto";
  /// ALLRAIL_LOCAL_PUTS (equal): `copy` or `rail`: how flat algorithms reach ranks of their node.
  std::string local_puts = "copy";
  /// ALLRAIL_SINGLE_COPY (equal): reading large blocks out of the memory of ranks of a node, where
  /// the system allows it: `auto` (if ranks do not outnumber cores), `on`, `off`.
  std::string single_copy = "auto";
  /// ALLRAIL_HOME_CPUS: where ranks of one machine outnumber the cpus that they may run on, each
  /// stays on one of them while it waits: `on`, `off` (wherever the kernel moves it).
  std::string home_cpus = "on";
  /// ALLRAIL_LOG: `error`, `warning`, `info`, `debug`, `trace`, `off`; `summary` adds one line of
  /// rail counters per rank when a communicator ends. Several words with commas.
  std::string log = "warning";

  /// Reads ALLRAIL_* variables. Local. Warns of unknown ones.
  /// @throws Error{BadConfiguration} naming the variable, its value and what is allowed.
  static Options from_environment();
};

/// One setting as allrail-info prints it.
struct Setting {
  std::string name;     ///< the environment variable
  std::string value;    ///< what is in force
  std::string origin;   ///< "environment" or "default"
  std::string allowed;  ///< values in words
  std::string meaning;  ///< one half sentence
};

/// Every setting with its value in `options` and where it came from. Local.
ALLRAIL_API std::vector<Setting> describe_settings(const Options& options);

}  // namespace allrail
