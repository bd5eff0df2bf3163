// How often a fabric over verbs rails rings the device: once for whatever one of its functions
// hands over.
#include <array>
#include <chrono>

#include <gtest/gtest.h>

#include "tests/fake_verbs/fake_verbs.hpp"
#include "tests/fake_verbs/rail_options.hpp"
#include "transport/fabric.hpp"
#include "transport/striping.hpp"
#include "transport/verbs/verbs_rail.hpp"
#include "transport/verbs/work.hpp"

namespace allrail::transport {
namespace {

using fake_verbs::PostedSends;

// A full queue of them is the smallest window, which counts while no rate is known.
constexpr std::uint32_t kChunkBytes = kLeastWindowBytes / verbs::kQueueDepth;
constexpr int kChunks = 512;
constexpr std::size_t kPutBytes = static_cast<std::size_t>(kChunkBytes) * kChunks;

class VerbsDoorbell : public testing::Test {
 protected:
  void SetUp() override {
    fake_verbs::reset(5);
    const JobSecret secret = JobSecret::random();
    FabricOptions fabric;
    fabric.chunk_bytes = kChunkBytes;
    std::array<PeerRails, 2> addresses;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      auto options = fake_verbs::rail_options(static_cast<int>(rank), fake_verbs::Ways::Manager);
      options.rank = static_cast<int>(rank);
      options.size = 2;
      options.secret = secret;
      std::vector<std::unique_ptr<Rail>> rails;
      rails.push_back(make_verbs_rail(options));
      addresses[rank].rails.push_back({options.name, rails[0]->address()});
      addresses[rank].pairs = {{0, 0}};
      fabrics_[rank] =
          std::make_unique<Fabric>(static_cast<int>(rank), 2, std::move(rails), fabric);
      fabrics_[rank]->set_primary_window(windows_[rank]);
      fabrics_[rank]->register_source(source_);
    }
    for (std::size_t rank = 0; rank < 2; ++rank)
      fabrics_[rank]->connect(static_cast<int>(1 - rank), addresses[1 - rank]);
    ASSERT_TRUE(until([&] { return from().connected(1) && to().connected(0); }));
    // The hellos.
    for (int i = 0; i < 200; ++i) progress();
  }
  void TearDown() override {
    for (auto& fabric : fabrics_) fabric.reset();
    EXPECT_EQ(fake_verbs::live().text(), "nothing");
    EXPECT_EQ(fake_verbs::completion_queue_overflows(), 0);
  }

  void progress() {
    for (auto& fabric : fabrics_) fabric->progress();
  }
  template <typename Done>
  bool until(Done done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      progress();
    }
    return true;
  }
  Fabric& from() { return *fabrics_[0]; }
  Fabric& to() { return *fabrics_[1]; }
  Put make_put(std::size_t bytes) const {
    Put put;
    put.peer = 1;
    put.from = source_.data();
    put.bytes = bytes;
    return put;
  }

  std::vector<std::byte> source_ = std::vector<std::byte>(kPutBytes, std::byte{7});
  std::array<std::vector<std::byte>, 2> windows_ = {std::vector<std::byte>(kPutBytes),
                                                    std::vector<std::byte>(kPutBytes)};
  std::array<std::unique_ptr<Fabric>, 2> fabrics_;
};

TEST_F(VerbsDoorbell, IsRungOncePerCall) {
  const PostedSends before = fake_verbs::posted_sends();
  const std::uint64_t number = from().put(make_put(kPutBytes));
  const PostedSends first = fake_verbs::posted_sends();
  // As many chunks as a link takes.
  EXPECT_EQ(first.requests - before.requests, verbs::kQueueDepth);
  EXPECT_EQ(first.calls - before.calls, 1);
  EXPECT_EQ(first.signalled - before.signalled, verbs::kQueueDepth / verbs::kSendsPerSignal);
  const std::uint64_t expected = to().expect(0, kPutBytes);
  bool any_two = false;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!to().arrived(0, expected) || !from().completed(1, number)) {
    ASSERT_LT(std::chrono::steady_clock::now(), end);
    to().progress();
    const PostedSends then = fake_verbs::posted_sends();
    from().progress();
    const PostedSends now = fake_verbs::posted_sends();
    EXPECT_LE(now.calls - then.calls, 1);
    any_two = any_two || now.requests - then.requests >= 2;
  }
  EXPECT_TRUE(any_two);
  EXPECT_EQ(windows_[1], source_);
  const PostedSends all = fake_verbs::posted_sends();
  const int requests = all.requests - before.requests;
  EXPECT_GE(requests, kChunks);
  EXPECT_LE(all.calls - before.calls, requests / 4);
  EXPECT_LE(all.signalled - before.signalled, requests / 4);
  to().consume(0, expected);
}

TEST_F(VerbsDoorbell, IsRungBeforeTheFabricReturns) {
  // Small puts, one by one: each has left when put() returns.
  for (int i = 1; i <= 8; ++i) {
    const PostedSends before = fake_verbs::posted_sends();
    from().put(make_put(100));
    EXPECT_EQ(fake_verbs::posted_sends().requests - before.requests, 1);
    EXPECT_TRUE(from().flushed());
    const std::uint64_t expected = to().expect(0, 100);
    ASSERT_TRUE(until([&] { return to().arrived(0, expected); }));
    to().consume(0, expected);
  }
  // Word of what was consumed.
  const PostedSends before = fake_verbs::posted_sends();
  to().flush_acknowledgements();
  EXPECT_EQ(fake_verbs::posted_sends().calls - before.calls, 1);
  to().say_goodbye();
  EXPECT_EQ(fake_verbs::posted_sends().calls - before.calls, 2);
  EXPECT_TRUE(to().flushed());
}

}  // namespace
}  // namespace allrail::transport
