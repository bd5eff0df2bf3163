// For tests of links between two verbs rails: a fixture that makes both, and looks at them.
#pragma once

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/fake_verbs/fake_verbs.hpp"
#include "tests/fake_verbs/rail_options.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace allrail::transport {

using fake_verbs::DeviceOptions;
using fake_verbs::Ways;

inline constexpr std::size_t kWindowBytes = 1U << 16;

struct Counts : RailEvents {
  int ups = 0, downs = 0, arrived = 0, completed = 0, messages = 0, answers = 0;
  std::string first_reason, last_reason;
  void link_answered(int, int) override { ++answers; }
  void link_up(int, int, int) override { ++ups; }
  void link_down(int, int, std::string_view reason) override {
    ++downs;
    last_reason = reason;
    if (first_reason.empty()) first_reason = reason;
  }
  bool chunk_wanted(int, int, std::uint32_t) override { return true; }
  void chunk_arrived(int, int, std::uint32_t, std::uint32_t) override { ++arrived; }
  void chunks_completed(int, int, int count) override { completed += count; }
  void control_arrived(int, int, std::span<const std::byte>) override { ++messages; }
};

/// Two ranks with a rail each, of two devices, whose link comes up.
class VerbsRailLinks : public testing::TestWithParam<Ways> {
 protected:
  void make(std::vector<DeviceOptions> devices = fake_verbs::default_devices(),
            bool has_siblings = true, bool second_is_late = false,
            const char* manager_broken_of = nullptr) {
    fake_verbs::reset(3, std::move(devices));
    if (manager_broken_of != nullptr) fake_verbs::break_manager(manager_broken_of);
    const JobSecret secret = JobSecret::random();
    for (std::size_t rank = 0; rank < 2; ++rank) {
      auto options = fake_verbs::rail_options(static_cast<int>(rank), GetParam());
      options.rank = static_cast<int>(rank);
      options.size = 2;
      options.secret = secret;
      options.has_siblings = has_siblings;
      options.gid_index = gid_index_;
      options.overdue_ns = overdue_ns_;
      options.connect_timeout_ns = connect_timeout_ns_;
      rails_[rank] = make_verbs_rail(options);
      rails_[rank]->set_primary_window(windows_[rank]);
      rails_[rank]->register_source(source_);
    }
    rails_[0]->connect(1, rails_[1]->address());
    const auto heard = [&] { return !second_is_late || counts_[0].answers > 0; };
    ASSERT_TRUE(until(heard));
    const auto waited = std::chrono::steady_clock::now() + second_waits_;
    until([&] { return std::chrono::steady_clock::now() > waited; });
    rails_[1]->connect(0, rails_[0]->address());
  }
  void TearDown() override {
    for (auto& rail : rails_) rail.reset();
    EXPECT_EQ(fake_verbs::live().text(), "nothing");
    EXPECT_EQ(fake_verbs::receiver_not_ready(), 0);
  }

  template <typename Done>
  bool until(Done done) {
    return fake_verbs::look_until(done, [this] {
      for (std::size_t rank = 0; rank < 2; ++rank) rails_[rank]->poll(counts_[rank]);
    });
  }
  bool both_up() { return rails_[0]->is_up(1) && rails_[1]->is_up(0); }
  bool post() {
    Chunk chunk;
    chunk.from = source_.data();
    chunk.bytes = 300;  // above what goes inline
    return rails_[0]->post(1, chunk);
  }
  bool post_message() { return rails_[0]->post_control(1, std::array<std::byte, 8>{}); }

  // What rails are made with.
  int gid_index_ = fake_verbs::rail_options(0, Ways::Both).gid_index;
  std::int64_t overdue_ns_ = 0;
  std::int64_t connect_timeout_ns_ = 0;
  std::chrono::milliseconds second_waits_{0};  // before it connects

  std::vector<std::byte> source_ = std::vector<std::byte>(kWindowBytes);
  std::array<std::vector<std::byte>, 2> windows_ = {std::vector<std::byte>(kWindowBytes),
                                                    std::vector<std::byte>(kWindowBytes)};
  std::array<Counts, 2> counts_;
  std::array<std::unique_ptr<Rail>, 2> rails_;
};

}  // namespace allrail::transport
