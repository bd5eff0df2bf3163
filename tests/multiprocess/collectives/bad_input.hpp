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

using Table = std::map<std::string, std::function<void(Case&)>>;

/// Of gather, scatter, broadcast and alltoall: what one rank can see by itself, and what only shows
/// between ranks.
const Table& rooted_local_cases();
const Table& rooted_mismatches();
/// The same of what is made alike of every collective.
const Table& every_local_cases();
const Table& every_mismatch();

}  // namespace probe
