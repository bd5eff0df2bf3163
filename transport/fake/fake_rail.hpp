// One rail of a FakeNetwork.
#pragma once

#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "transport/fake/fake_network.hpp"
#include "transport/rail.hpp"

namespace allrail::transport {

class FakeRail final : public Rail {
 public:
  FakeRail(FakeNetwork& network, int rank, int index);
  ~FakeRail() override;

  int index() const override { return index_; }
  const std::string& name() const override { return name_; }
  std::uint32_t max_chunk_bytes() const override { return options().max_chunk_bytes; }
  int queue_depth() const override { return options().queue_depth; }
  std::int64_t resend_after_ns() const override { return options().resend_after_ns; }
  std::vector<std::byte> address() const override;
  void set_primary_window(std::span<std::byte> memory) override { primary_ = memory; }
  RemoteKey register_window(std::span<std::byte> memory) override;
  void unregister_window(const RemoteKey& key) override;
  void connect(int peer, std::span<const std::byte> address) override;
  void forget(int peer) override;
  bool is_up(int peer) const override;
  bool post(int peer, const Chunk& chunk) override;
  bool post_control(int peer, std::span<const std::byte> message) override;
  void submit() override;
  bool poll(RailEvents& events) override;
  bool poll_peer(RailEvents& events, int peer) override;
  bool flushed() const override { return unsubmitted_.empty(); }
  std::int64_t unsent_bytes(int peer) const override;
  void flush_acknowledgements() override;
  void close(int peer, RailEvents& events) override;
  void end_link(int peer);
  int event_descriptor() const override { return -1; }
  void prepare_sleep() override {}

 private:
  friend class FakeNetwork;

  struct Report {
    enum class Kind { Up, Answered, Down, Arrived, Payload, Completed, Control };
    Kind kind = Kind::Up;
    int peer = -1;
    int peer_rail = -1;  // Up
    Chunk chunk;
    bool is_held = false;          // an arrival that this end has to acknowledge
    std::vector<std::byte> bytes;  // of a control message or a payload
    std::string reason;
  };

  const FakeRailOptions& options() const;
  /// The link that this rail has, had or tries to make to the peer.
  FakeNetwork::Link& link_to(int peer) const;
  FakeNetwork::End& end_to(int peer) const { return link_to(peer).ends[side_to(peer)]; }
  int side_to(int peer) const { return rank_ < peer ? 0 : 1; }
  /// Where the chunk goes here, or null if it does not fit a window.
  std::byte* target(const Chunk& chunk) const;
  void deliver(const Report& report, RailEvents& events);
  void count_completed(FakeNetwork::End& end) const;
  static bool is_data(const Report& report);
  void acknowledge_held(int peer);
  /// Forgets completions and messages of this peer that were not reported; `all`: everything.
  void purge(int peer, bool all);

  FakeNetwork& network_;
  int rank_;
  int index_;
  std::string name_;
  std::int64_t sends_until_ns_ = 0;
  std::int64_t receives_until_ns_ = 0;  // see startup_ns
  // Peers to whom something was posted since submit(). What is not held is under way already, but
  // whoever forgets submit() is to be seen.
  std::set<int> unsubmitted_;
  std::span<std::byte> primary_;
  std::map<std::uint64_t, std::span<std::byte>> windows_;
  std::map<int, int> partners_;  // by peer, its rail
  std::set<int> wanted_;         // peers
  std::deque<Report> reports_;
  std::map<int, int> held_;  // by peer, chunks that arrived here and are not acknowledged
};

}  // namespace allrail::transport
