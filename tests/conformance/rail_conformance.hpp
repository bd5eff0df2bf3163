// The contract of transport/rail.hpp as tests, for every kind of rail.
//
// A new kind enrols in one file, linked with rail_conformance.cpp (rail_conformance_dep):
//
//   class MyRailGroup : public RailGroup {          // two processes' rails, here in one process
//    public:
//     Rail& rail(int rank) override { return *rails_[rank]; }
//     void step() override {}                       // what else must run, or time passing
//    private:
//     std::array<std::unique_ptr<Rail>, 2> rails_;  // index() 0 each, of rank 0 and of rank 1
//   };
//   INSTANTIATE_TEST_SUITE_P(
//       MyRail, RailConformance,
//       testing::Values(RailCase{"plain", [] { return std::make_unique<MyRailGroup>(); }}),
//       rail_case_name);
//
// The suite sets the windows and connects. See fake_rail_test.cpp.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/bytes.hpp"
#include "transport/rail.hpp"

namespace allrail::transport {

class RailGroup {
 public:
  virtual ~RailGroup() = default;
  /// The rail of rank 0 or 1, as made: no window set, not connected.
  virtual Rail& rail(int rank) = 0;
  /// Called between polls while the suite waits.
  virtual void step() {}
};

struct RailCase {
  std::string name;
  std::function<std::unique_ptr<RailGroup>()> make;
};

inline std::string rail_case_name(const testing::TestParamInfo<RailCase>& info) {
  return info.param.name;
}

inline bool all_zero(std::span<const std::byte> bytes) { return all_are(bytes, std::byte{}); }

/// Keeps what a rail reported.
struct RailRecord : RailEvents {
  struct Arrival {
    std::uint32_t immediate = 0;
    std::uint32_t bytes = 0;
    std::vector<std::byte> seen;  // what could be read at that moment, if `watched`
  };
  int ups = 0;
  int downs = 0;
  int completed = 0;
  bool wanted = true;
  std::string reason;
  std::vector<Arrival> arrivals;
  std::vector<std::vector<std::byte>> messages;
  std::span<const std::byte> watched;
  int rail = -1;
  int peer = -1;
  int rail_of_peer = -1;

  void link_up(int rail_index, int peer_rank, int peer_rail) override;
  void link_down(int rail_index, int peer_rank, std::string_view text) override;
  bool chunk_wanted(int, int, std::uint32_t) override { return wanted; }
  void chunk_arrived(int, int, std::uint32_t immediate, std::uint32_t bytes) override;
  void chunks_completed(int, int, int count) override { completed += count; }
  void control_arrived(int, int, std::span<const std::byte> message) override;
};

class RailConformance : public testing::TestWithParam<RailCase> {
 protected:
  void SetUp() override;
  /// Polls both rails until `done`; false after ten seconds.
  bool until(const std::function<bool()>& done);
  /// Polls one or both rails for a while in which nothing is to happen.
  void idle(bool poll_sender = true, bool poll_receiver = true);
  void connect();
  bool post(std::size_t at, std::uint32_t bytes, std::uint32_t immediate, bool held = false);
  /// The bytes that are to go to this place of the window.
  static std::byte pattern(std::size_t at) { return static_cast<std::byte>(at * 31 / 7 + 1); }
  static const std::vector<std::byte>& whole_pattern();
  bool begins_like_source(std::span<const std::byte> window, std::size_t bytes) const {
    return same_bytes(window.first(bytes), std::span(source_).first(bytes));
  }

  Rail& sender() { return group_->rail(0); }
  Rail& receiver() { return group_->rail(1); }

  static constexpr std::size_t kWindowBytes = 4U << 20;
  std::unique_ptr<RailGroup> group_;
  std::vector<std::byte> window_ = std::vector<std::byte>(kWindowBytes);
  std::vector<std::byte> other_window_ = std::vector<std::byte>(kWindowBytes);
  std::vector<std::byte> source_ = whole_pattern();
  RailRecord at_sender_;
  RailRecord at_receiver_;
};

}  // namespace allrail::transport
