// Rails of several ranks as objects of one process, and what they reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/clock.hpp"
#include "transport/tcp/tcp_rail.hpp"

namespace allrail::transport {

struct RecordedEvents : RailEvents {
  std::map<int, int> ups, downs, answers, rail_of_peer;
  std::map<int, std::uint64_t> completed;
  std::map<int, std::vector<std::uint32_t>> arrived;
  std::map<int, std::vector<std::string>> controls;
  std::string last_reason;
  std::function<bool(int peer, std::uint32_t immediate)> wanted;
  std::function<void(int peer, std::uint32_t immediate)> on_arrival;

  void link_up(int, int peer, int peer_rail) override {
    ++ups[peer];
    rail_of_peer[peer] = peer_rail;
  }
  void link_answered(int, int peer) override { ++answers[peer]; }
  void link_down(int, int peer, std::string_view reason) override {
    ++downs[peer];
    last_reason = std::string(reason);
  }
  bool chunk_wanted(int, int peer, std::uint32_t immediate) override {
    return !wanted || wanted(peer, immediate);
  }
  void chunk_arrived(int, int peer, std::uint32_t immediate, std::uint32_t) override {
    arrived[peer].push_back(immediate);
    if (on_arrival) on_arrival(peer, immediate);
  }
  void chunks_completed(int, int peer, int count) override {
    completed[peer] += static_cast<std::uint64_t>(count);
  }
  void control_arrived(int, int peer, std::span<const std::byte> message) override {
    controls[peer].emplace_back(reinterpret_cast<const char*>(message.data()), message.size());
  }
};

/// To `offset` of the peer's primary window.
inline Chunk make_chunk(std::span<const std::byte> from, std::uint64_t offset,
                        std::uint32_t immediate) {
  Chunk chunk;
  chunk.from = from.data();
  chunk.bytes = static_cast<std::uint32_t>(from.size());
  chunk.offset = offset;
  chunk.immediate = immediate;
  return chunk;
}

struct TestRank {
  std::unique_ptr<Rail> rail;
  RecordedEvents events;
  std::vector<std::byte> memory;
};

/// Ranks whose rails are polled in turn by one thread.
class TestJob {
 public:
  TestJob(int size, std::size_t window_bytes) : secret_(JobSecret::random()), size_(size) {
    for (int rank = 0; rank < size; ++rank) {
      TestRank& one = ranks_.emplace_back();
      one.memory.resize(window_bytes);
      one.rail = make_rail(rank);
      one.rail->set_primary_window(one.memory);
    }
  }
  std::unique_ptr<Rail> make_rail(int rank, int index = 3) const {
    TcpRailOptions options;
    options.index = index;
    options.item = "127.0.0.2";
    options.rank = rank;
    options.size = size_;
    options.job_hash = 99;
    options.secret = secret_;
    return make_tcp_rail(options);
  }
  TestRank& operator[](int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  void connect(int a, int b) {
    (*this)[a].rail->connect(b, (*this)[b].rail->address());
    (*this)[b].rail->connect(a, (*this)[a].rail->address());
  }
  bool linked(int a, int b) { return (*this)[a].rail->is_up(b) && (*this)[b].rail->is_up(a); }
  void poll() {
    for (TestRank& one : ranks_) {
      if (one.rail) one.rail->poll(one.events);
    }
  }
  /// Polls all rails until `done`; false after ten seconds.
  bool poll_until(const std::function<bool()>& done) {
    const base::Deadline deadline = base::Deadline::after(std::chrono::seconds(10));
    while (!done()) {
      if (deadline.passed()) return false;
      poll();
    }
    return true;
  }
  void poll_for(std::chrono::milliseconds time) {
    const base::Deadline deadline = base::Deadline::after(time);
    while (!deadline.passed()) poll();
  }
  const JobSecret& secret() const { return secret_; }

 private:
  JobSecret secret_;
  int size_;
  std::vector<TestRank> ranks_;
};

}  // namespace allrail::transport
