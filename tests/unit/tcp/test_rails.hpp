// Rails of several ranks as objects of one process, and what they reported.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "lib/base/clock.hpp"
#include "tests/bytes.hpp"
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

/// The same bytes for the same seed.
inline std::vector<std::byte> pattern(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> data(bytes);
  std::mt19937_64 random(seed);
  fill_randomly(data, random);
  return data;
}

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

/// Sends `data` in chunks of `chunk_bytes` to the same place of the peer's primary window.
inline bool transfer(TestJob& job, int from, int to, std::span<const std::byte> data,
                     std::size_t chunk_bytes) {
  const std::size_t count = (data.size() + chunk_bytes - 1) / chunk_bytes;
  const std::uint64_t completed_before = job[from].events.completed[to];
  std::size_t posted = 0;
  return job.poll_until([&] {
    while (posted < count) {
      const auto piece = data.subspan(posted * chunk_bytes,
                                      std::min(chunk_bytes, data.size() - posted * chunk_bytes));
      if (!job[from].rail->post(
              to, make_chunk(piece, posted * chunk_bytes, static_cast<std::uint32_t>(posted)))) {
        break;
      }
      ++posted;
    }
    return job[from].events.completed[to] - completed_before == count;
  });
}

}  // namespace allrail::transport
