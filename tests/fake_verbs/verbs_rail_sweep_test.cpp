// The verbs rail while each of its calls fails in turn, with several errnos, and each of its
// completions with every status: two ranks connect, carry chunks both ways, lose a port and end.
//
// A life ends where a link goes down, so that thousands of them fit in; that links come back after
// a failure is verbs_rail_failures_test.cpp's.
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "include/allrail/error.hpp"
#include "lib/base/log.hpp"
#include "tests/fake_verbs/fake_verbs.hpp"
#include "transport/verbs/ports.hpp"
#include "transport/verbs/verbs_rail.hpp"

namespace allrail::transport {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::uint32_t kChunkBytes = 700;  // longer than what travels inline
constexpr int kChunks = 3;
constexpr std::size_t kWindowBytes = kChunks * kChunkBytes;
constexpr auto kLimit = std::chrono::seconds(10);
constexpr auto kEventInterval = std::chrono::milliseconds(2);  // twice the rail's

/// One of two ranks, with a rail.
struct End : RailEvents {
  Bytes window = Bytes(kWindowBytes);
  Bytes source = Bytes(kWindowBytes);
  std::unique_ptr<Rail> rail;  // before the memory that it uses goes
  std::set<std::uint32_t> arrived;
  int completed = 0;
  int messages = 0, messages_wanted = 1;
  bool posted = false;
  bool down = false;

  void link_up(int, int, int) override {}
  void link_down(int, int, std::string_view reason) override {
    EXPECT_FALSE(reason.empty());
    down = true;
  }
  bool chunk_wanted(int, int, std::uint32_t) override { return true; }
  void chunk_arrived(int, int, std::uint32_t immediate, std::uint32_t bytes) override {
    EXPECT_EQ(bytes, kChunkBytes);
    EXPECT_LT(immediate, static_cast<std::uint32_t>(kChunks));
    EXPECT_TRUE(arrived.insert(immediate).second) << "chunk " << immediate << " arrives twice";
  }
  void chunks_completed(int, int, int count) override { completed += count; }
  void control_arrived(int, int, std::span<const std::byte> message) override {
    EXPECT_EQ(message.size(), 40U);
    ++messages;
  }
  bool has_all() const {
    return arrived.size() == kChunks && completed == kChunks && messages == messages_wanted;
  }
  /// Chunk `number` of the other end is here, whole.
  bool holds(const End& other, int number) const {
    const auto at = static_cast<std::ptrdiff_t>(number) * kChunkBytes;
    return std::equal(window.begin() + at, window.begin() + at + kChunkBytes,
                      other.source.begin() + at);
  }
};

class Pair {
 public:
  Pair() {
    for (std::size_t rank = 0; rank < 2; ++rank) {
      End& end = ends_[rank];
      for (std::size_t i = 0; i < kWindowBytes; ++i)
        end.source[i] = static_cast<std::byte>(i * 7 / 5 + rank + 1);
      VerbsRailOptions options;
      options.address = rank == 0 ? "10.9.0.1" : "10.9.1.1";
      options.name = rank == 0 ? "fake0:1" : "fake1:1";
      options.rank = static_cast<int>(rank);
      options.size = 2;
      end.rail = make_verbs_rail(options);
      end.rail->set_primary_window(end.window);
      end.rail->register_source(end.source);
    }
    for (int rank = 0; rank < 2; ++rank)
      at(rank).rail->connect(1 - rank, at(1 - rank).rail->address());
  }

  /// Until all bytes are there, or a link went down.
  void carry() {
    run_until([&] {
      for (int rank = 0; rank < 2; ++rank) post(rank);
      return ends_[0].has_all() && ends_[1].has_all();
    });
    wake_sleepers();
    check_bytes();
  }

  /// Both ends learn that a port is gone.
  void lose_port() {
    if (any_down()) return;
    fake_verbs::cut("fake0");
    // The end whose port it is learns it by an event, the other one by a write that fails.
    run_until([] { return false; });
    EXPECT_TRUE(any_down());
    for (int rank = 0; rank < 2; ++rank) at(rank).rail->close(1 - rank, at(rank));
    check_bytes();
  }

  bool both_have_all() const { return ends_[0].has_all() && ends_[1].has_all(); }

  /// Rails look at events by the clock, and a life may be over before it is time for that.
  void look_at_events() {
    const auto end = std::chrono::steady_clock::now() + kEventInterval;
    while (std::chrono::steady_clock::now() < end) {
      for (int rank = 0; rank < 2; ++rank) at(rank).rail->poll(at(rank));
    }
  }

 private:
  /// A message arrives while the other end sleeps: its event is there when next somebody looks at
  /// events, which is a matter of the clock.
  void wake_sleepers() {
    for (int rank = 0; rank < 2 && !any_down(); ++rank) {
      at(1 - rank).rail->prepare_sleep();
      if (at(rank).rail->post_control(1 - rank, std::array<std::byte, 40>()))
        ++at(1 - rank).messages_wanted;
    }
    run_until([&] { return both_have_all(); });
  }

  End& at(int rank) { return ends_[static_cast<std::size_t>(rank)]; }
  bool any_down() const { return ends_[0].down || ends_[1].down; }

  template <typename Done>
  void run_until(Done done) {
    const auto end = std::chrono::steady_clock::now() + kLimit;
    for (unsigned polls = 1; !any_down() && !done(); ++polls) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "nothing happens any more";
      for (int rank = 0; rank < 2; ++rank) at(rank).rail->poll(at(rank));
      if (polls % 5 == 0) at(static_cast<int>(polls / 5 % 2)).rail->prepare_sleep();
    }
  }

  void post(int rank) {
    End& end = at(rank);
    if (end.posted || !end.rail->is_up(1 - rank)) return;
    end.posted = true;
    for (int number = 0; number < kChunks; ++number) {
      Chunk chunk;
      chunk.offset = static_cast<std::uint64_t>(number) * kChunkBytes;
      chunk.from = end.source.data() + chunk.offset;
      chunk.bytes = kChunkBytes;
      chunk.immediate = static_cast<std::uint32_t>(number);
      // A link that a post has broken takes no more.
      if (!end.rail->post(1 - rank, chunk)) return;
    }
    (void)end.rail->post_control(1 - rank, std::array<std::byte, 40>());
  }

  /// Neither end was told of a chunk that is not there.
  void check_bytes() {
    for (int rank = 0; rank < 2; ++rank) {
      for (const std::uint32_t number : at(rank).arrived)
        EXPECT_TRUE(at(rank).holds(at(1 - rank), static_cast<int>(number)));
      for (int number = 0; number < at(1 - rank).completed; ++number)
        EXPECT_TRUE(at(rank).holds(at(1 - rank), number));
    }
  }

  std::array<End, 2> ends_;
};

/// Releases that are made to fail are logged, each of them.
class VerbsRailSweep : public testing::Test {
 protected:
  void SetUp() override { base::set_log(base::Level::Error, -1); }
  void TearDown() override { base::set_log(base::Level::Warning, -1); }
};

enum class Life { NotMade, Broken, Whole };

/// From the making of the rails to their end, after which nothing may be left. `looks_at_events`:
/// no life without that, whatever the clock says.
Life live_through(bool looks_at_events = false) {
  Life life = Life::NotMade;
  try {
    Pair pair;
    life = Life::Broken;
    pair.carry();
    if (pair.both_have_all()) life = Life::Whole;
    pair.lose_port();
    if (looks_at_events) pair.look_at_events();
  } catch (const Error& error) {
    EXPECT_EQ(life, Life::NotMade) << "thrown later than it may be: " << error.what();
    EXPECT_NE(std::string(error.what()).find("rail fake"), std::string::npos) << error.what();
  }
  EXPECT_EQ(fake_verbs::live().text(), "nothing");
  EXPECT_EQ(fake_verbs::receiver_not_ready(), 0);
  EXPECT_EQ(fake_verbs::completion_queue_overflows(), 0);
  return life;
}

/// The names of the calls since reset(), in their order.
std::vector<std::string> calls_made() {
  std::vector<std::string> names;
  for (int n = 1; n <= fake_verbs::calls(); ++n) names.push_back(fake_verbs::name_of_call(n));
  return names;
}

TEST_F(VerbsRailSweep, EveryCallFailsWithEveryErrno) {
  fake_verbs::reset(1);
  ASSERT_EQ(live_through(true), Life::Whole);
  const auto all = calls_made();
  const std::set<std::string> functions(all.begin(), all.end());
  for (const char* const function : {"ibv_alloc_pd",
                                     "ibv_close_device",
                                     "ibv_create_comp_channel",
                                     "ibv_create_cq",
                                     "ibv_dealloc_pd",
                                     "ibv_dereg_mr",
                                     "ibv_destroy_comp_channel",
                                     "ibv_destroy_cq",
                                     "ibv_get_async_event",
                                     "ibv_get_cq_event",
                                     "ibv_open_device",
                                     "ibv_poll_cq",
                                     "ibv_post_recv",
                                     "ibv_post_send",
                                     "ibv_query_device",
                                     "ibv_query_port",
                                     "ibv_reg_mr",
                                     "ibv_req_notify_cq",
                                     "rdma_accept",
                                     "rdma_bind_addr",
                                     "rdma_connect",
                                     "rdma_create_event_channel",
                                     "rdma_create_id",
                                     "rdma_create_qp",
                                     "rdma_destroy_id",
                                     "rdma_disconnect",
                                     "rdma_get_cm_event",
                                     "rdma_listen",
                                     "rdma_resolve_addr",
                                     "rdma_resolve_route",
                                     "rdma_set_option"}) {
    EXPECT_TRUE(functions.contains(function)) << function << " is not in the sweep";
  }
  std::array<int, 3> lives{};
  for (const std::string& function : functions) {
    for (const int error : {EIO, ENOMEM, EINVAL}) {
      // Until a life does not make the call so often.
      for (int n = 1;; ++n) {
        SCOPED_TRACE(function + ", call " + std::to_string(n) + ", errno " + std::to_string(error));
        fake_verbs::reset(static_cast<std::uint64_t>(n));
        fake_verbs::fail_call_of(function, n, error);
        const Life life = live_through(function.starts_with("ibv_get_"));
        if (fake_verbs::failed_calls().empty()) break;
        ++lives[static_cast<std::size_t>(life)];
        if (HasFailure()) return;
      }
    }
  }
  // Some calls are needed to begin, some to go on, and without some the bytes come through.
  for (const int count : lives) EXPECT_GT(count, 30);
}

TEST_F(VerbsRailSweep, EveryCompletionFailsWithEveryStatus) {
  int broken = 0;
  for (int status = IBV_WC_SUCCESS + 1; status <= IBV_WC_GENERAL_ERR; ++status) {
    for (int n = 1;; ++n) {
      SCOPED_TRACE("completion " + std::to_string(n) + ": " +
                   ibv_wc_status_str(static_cast<ibv_wc_status>(status)));
      fake_verbs::reset(static_cast<std::uint64_t>(n));
      fake_verbs::fail_completion(n, static_cast<ibv_wc_status>(status));
      const Life life = live_through();
      if (fake_verbs::completions() < n) break;
      EXPECT_NE(life, Life::NotMade);
      if (life == Life::Broken) ++broken;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(broken, IBV_WC_GENERAL_ERR * 2 * kChunks);
}

TEST_F(VerbsRailSweep, EveryWorkRequestFailsWithEveryStatusOrErrno) {
  int broken = 0;
  // Below zero: an errno of ibv_post_send, in the middle of a list.
  for (int wanted = -2; wanted <= IBV_WC_GENERAL_ERR; ++wanted) {
    if (wanted == IBV_WC_SUCCESS) continue;
    for (int n = 1;; ++n) {
      SCOPED_TRACE("work request " + std::to_string(n) + ": " + std::to_string(wanted));
      fake_verbs::reset(static_cast<std::uint64_t>(n));
      if (wanted < 0)
        fake_verbs::refuse_send(n, wanted == -1 ? ENOMEM : EINVAL);
      else
        fake_verbs::fail_send(n, static_cast<ibv_wc_status>(wanted));
      const Life life = live_through();
      if (fake_verbs::posted_sends().requests + (wanted < 0 ? 1 : 0) < n) break;
      EXPECT_NE(life, Life::NotMade);
      if (life == Life::Broken) ++broken;
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(broken, IBV_WC_GENERAL_ERR * 2 * kChunks);
}

TEST_F(VerbsRailSweep, EveryCallOfTheSearchForPortsFails) {
  fake_verbs::reset(1);
  ASSERT_EQ(list_verbs_ports("/nowhere").size(), 2U);
  const auto all = calls_made();
  ASSERT_GT(all.size(), 10U);
  for (const int error : {EIO, ENOMEM, EACCES}) {
    for (int n = 1; n <= static_cast<int>(all.size()); ++n) {
      SCOPED_TRACE(all[static_cast<std::size_t>(n - 1)] + ", call " + std::to_string(n));
      fake_verbs::reset(1);
      fake_verbs::fail_call(n, error);
      const auto ports = list_verbs_ports("/nowhere");
      EXPECT_EQ(fake_verbs::failed_calls().size(), 1U);
      EXPECT_EQ(fake_verbs::live().text(), "nothing");
      if (ports.empty()) {
        EXPECT_EQ(all[static_cast<std::size_t>(n - 1)], "ibv_get_device_list");
        continue;
      }
      ASSERT_EQ(ports.size(), 2U) << "a port that says nothing is listed too";
      for (const VerbsPort& port : ports)
        EXPECT_TRUE(!port.defect.empty() || (port.is_active && port.gids.size() >= 3))
            << port.name();
    }
  }
}

}  // namespace
}  // namespace allrail::transport
