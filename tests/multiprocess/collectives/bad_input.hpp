// What the tables of wrong calls share.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {

using allrail::CallOptions;
using allrail::Communicator;
using Bytes = std::vector<unsigned char>;

constexpr std::size_t kBytes = 1000;

struct Case {
  Communicator& communicator;
  bool odd;           // this rank does it differently
  std::size_t ranks;  // of the job
  std::size_t me;
  Bytes send;
  Bytes receive;
  bool planned = false;  // the calls at places of their own are plans

  std::vector<std::size_t> counts(std::size_t each = kBytes) const {
    return std::vector<std::size_t>(ranks, each);
  }
  void right() { communicator.allgather(send, receive); }
  void with(const CallOptions& options) { communicator.allgather(send, receive, options); }
};

/// Displacements of blocks that follow each other.
inline std::vector<std::size_t> places(const Case& c) {
  std::vector<std::size_t> all(c.ranks);
  for (std::size_t rank = 0; rank < c.ranks; ++rank) all[rank] = rank * kBytes;
  return all;
}

inline void run(allrail::Plan plan) {
  plan.start();
  plan.wait();
}

using Table = std::map<std::string, std::function<void(Case&)>>;

/// Of gather, scatter, broadcast and alltoall: what one rank can see by itself, and what only shows
/// between ranks.
const Table& rooted_local_cases();
const Table& rooted_mismatches();
/// The same of alltoallv; the first are among those of all that is rooted.
const Table& alltoallv_local_cases();
const Table& alltoallv_mismatches();
/// The same of what is made alike of every collective.
const Table& every_local_cases();
const Table& every_mismatch();

}  // namespace probe
