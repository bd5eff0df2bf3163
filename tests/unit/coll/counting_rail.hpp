// A rail that counts what is registered with it, said over it and looked for, and may refuse to
// register.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "include/allrail/error.hpp"
#include "transport/rail.hpp"

namespace allrail::coll::testing {

struct RailUse {
  int windows = 0;  // registered ever
  int sources = 0;
  int held = 0;  // windows and sources now
  std::uint64_t held_bytes = 0;
  std::uint64_t most_bytes = 0;
  bool refuse = false;
  int messages = 0;    // control messages posted
  int flushes = 0;     // of acknowledgements
  int unanswered = 0;  // flushes of those that nothing answers
  int polls = 0;
  int polls_until_flush = -1;                          // before the first of them
  bool holds_back = false;                             // nothing that is posted has left
  bool is_stuck = false;                               // and never does, for all that is known
  const std::atomic<bool>* finds_something = nullptr;  // at each look, as long as it is true
};

class CountingRail final : public transport::Rail {
 public:
  CountingRail(std::unique_ptr<Rail> rail, RailUse& use) : rail_(std::move(rail)), use_(use) {}

  transport::RemoteKey register_window(std::span<std::byte> memory) override {
    add(memory.size());
    ++use_.windows;
    windows_.emplace_back(rail_->register_window(memory), memory.size());
    return windows_.back().first;
  }
  void unregister_window(const transport::RemoteKey& key) override {
    for (auto& [known, bytes] : windows_) {
      if (known == key) remove(std::exchange(bytes, 0));
    }
    rail_->unregister_window(key);
  }
  void register_source(std::span<const std::byte> memory) override {
    add(memory.size());
    ++use_.sources;
    rail_->register_source(memory);
  }
  void unregister_source(std::span<const std::byte> memory) override {
    remove(memory.size());
    rail_->unregister_source(memory);
  }

  std::int64_t unsent_bytes(int peer) const override {
    return use_.holds_back ? 1 << 20 : rail_->unsent_bytes(peer);
  }

  int index() const override { return rail_->index(); }
  const std::string& name() const override { return rail_->name(); }
  std::uint32_t max_chunk_bytes() const override { return rail_->max_chunk_bytes(); }
  int queue_depth() const override { return rail_->queue_depth(); }
  std::vector<std::byte> address() const override { return rail_->address(); }
  void set_primary_window(std::span<std::byte> memory) override {
    rail_->set_primary_window(memory);
  }
  void connect(int peer, std::span<const std::byte> address) override {
    rail_->connect(peer, address);
  }
  void forget(int peer) override { rail_->forget(peer); }
  bool is_up(int peer) const override { return rail_->is_up(peer); }
  bool post(int peer, const transport::Chunk& chunk) override { return rail_->post(peer, chunk); }
  bool post_control(int peer, std::span<const std::byte> message) override {
    ++use_.messages;
    return rail_->post_control(peer, message);
  }
  void submit() override { rail_->submit(); }
  bool poll(transport::RailEvents& events) override {
    ++use_.polls;
    return rail_->poll(events) || finds_something();
  }
  bool poll_peer(transport::RailEvents& events, int peer) override {
    ++use_.polls;
    return rail_->poll_peer(events, peer) || finds_something();
  }
  bool flushed() const override { return !use_.is_stuck && rail_->flushed(); }
  void flush_acknowledgements() override {
    if (use_.flushes++ == 0) use_.polls_until_flush = use_.polls;
    rail_->flush_acknowledgements();
  }
  void acknowledge_unanswered() override {
    ++use_.unanswered;
    rail_->acknowledge_unanswered();
  }
  void close(int peer, transport::RailEvents& events) override { rail_->close(peer, events); }
  int event_descriptor() const override { return rail_->event_descriptor(); }
  void prepare_sleep() override { rail_->prepare_sleep(); }

 private:
  bool finds_something() const { return use_.finds_something != nullptr && *use_.finds_something; }
  void add(std::uint64_t bytes) {
    if (use_.refuse) throw Error(Code::ResourceLimit, "this rail registers nothing");
    ++use_.held;
    use_.held_bytes += bytes;
    use_.most_bytes = std::max(use_.most_bytes, use_.held_bytes);
  }
  void remove(std::uint64_t bytes) {
    --use_.held;
    use_.held_bytes -= bytes;
  }

  std::unique_ptr<Rail> rail_;
  RailUse& use_;
  std::vector<std::pair<transport::RemoteKey, std::uint64_t>> windows_;
};

}  // namespace allrail::coll::testing
