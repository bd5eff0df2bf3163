// What a verbs rail gives to ibv_post_send: one list per submit(), few of it signalled, and what
// becomes of the rest when one of a list is refused or fails.
#include <array>
#include <chrono>
#include <cstring>

#include <gtest/gtest.h>

#include "tests/fake_verbs/fake_verbs.hpp"
#include "tests/fake_verbs/rail_options.hpp"
#include "transport/verbs/verbs_rail.hpp"
#include "transport/verbs/work.hpp"

namespace allrail::transport {
namespace {

using fake_verbs::PostedSends;
using fake_verbs::Ways;

constexpr std::size_t kWindowBytes = 1U << 21;
constexpr std::uint32_t kChunkBytes = 300;  // above what goes inline
constexpr int kMessages = verbs::kControlDepth;

struct Seen : RailEvents {
  int downs = 0, completed = 0;
  std::string reason;
  std::vector<std::uint32_t> arrived;
  std::vector<std::byte> messages;  // the first byte of each
  void link_up(int, int, int) override {}
  void link_down(int, int, std::string_view text) override {
    ++downs;
    reason = text;
  }
  bool chunk_wanted(int, int, std::uint32_t) override { return true; }
  void chunk_arrived(int, int, std::uint32_t immediate, std::uint32_t) override {
    arrived.push_back(immediate);
  }
  void chunks_completed(int, int, int count) override { completed += count; }
  void control_arrived(int, int, std::span<const std::byte> message) override {
    messages.push_back(message[0]);
  }
};

class VerbsRailLists : public testing::Test {
 protected:
  void SetUp() override { make(1); }
  void make(std::uint64_t seed) {
    fake_verbs::reset(seed);
    const JobSecret secret = JobSecret::random();
    for (std::size_t i = 0; i < kWindowBytes; ++i) source_[i] = static_cast<std::byte>(i * 7 / 5);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      std::fill(windows_[rank].begin(), windows_[rank].end(), std::byte{0});
      seen_[rank] = {};
      auto options = fake_verbs::rail_options(static_cast<int>(rank), Ways::Manager);
      options.rank = static_cast<int>(rank);
      options.size = 2;
      options.secret = secret;
      rails_[rank] = make_verbs_rail(options);
      rails_[rank]->set_primary_window(windows_[rank]);
      rails_[rank]->register_source(source_);
    }
    for (std::size_t rank = 0; rank < 2; ++rank)
      rails_[rank]->connect(static_cast<int>(1 - rank), rails_[1 - rank]->address());
    ASSERT_TRUE(until([&] { return both_up(); }));
  }
  void TearDown() override {
    for (auto& rail : rails_) rail.reset();
    EXPECT_EQ(fake_verbs::live().text(), "nothing");
    EXPECT_EQ(fake_verbs::receiver_not_ready(), 0);
    EXPECT_EQ(fake_verbs::completion_queue_overflows(), 0);
  }

  template <typename Done>
  bool until(Done done) {
    return fake_verbs::look_until(done, [this] {
      for (std::size_t rank = 0; rank < 2; ++rank) rails_[rank]->poll(seen_[rank]);
    });
  }
  bool both_up() { return rails_[0]->is_up(1) && rails_[1]->is_up(0); }
  Rail& sender() { return *rails_[0]; }

  /// Chunk `number` goes to its own place.
  bool post(int number, std::uint32_t bytes = kChunkBytes) {
    Chunk chunk;
    chunk.offset = static_cast<std::uint64_t>(number) * bytes;
    chunk.from = source_.data() + chunk.offset;
    chunk.bytes = bytes;
    chunk.immediate = static_cast<std::uint32_t>(number);
    return sender().post(1, chunk);
  }
  /// From memory that does not outlive the call.
  bool post_message(int number, std::size_t bytes = 100) {
    std::vector<std::byte> message(bytes, static_cast<std::byte>(number));
    const bool taken = sender().post_control(1, message);
    std::fill(message.begin(), message.end(), std::byte{0xee});
    return taken;
  }
  bool has_landed(int number) const {
    const auto at = static_cast<std::ptrdiff_t>(number) * kChunkBytes;
    return std::equal(source_.begin() + at, source_.begin() + at + kChunkBytes,
                      windows_[1].begin() + at);
  }
  /// What ibv_post_send took since it was asked last.
  PostedSends posted() {
    const PostedSends all = fake_verbs::posted_sends();
    const PostedSends now{all.calls - last_.calls, all.requests - last_.requests,
                          all.signalled - last_.signalled, all.inlined - last_.inlined};
    last_ = all;
    return now;
  }
  /// A full queue goes through: nothing that failed before takes a place in it.
  void expect_whole_queue() {
    // Of messages the sender sees nothing but that there is room for others.
    ASSERT_TRUE(until([&] { return both_up() && fake_verbs::busy_queue_pairs() == 0; }));
    for (int polls = 0; polls < 5; ++polls) rails_[0]->poll(seen_[0]);
    for (Seen& one : seen_) one = {};
    for (int i = 0; i < verbs::kQueueDepth; ++i) ASSERT_TRUE(post(i)) << i;
    EXPECT_FALSE(post(verbs::kQueueDepth));
    for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(post_message(i)) << i;
    EXPECT_FALSE(post_message(kMessages));
    sender().submit();
    ASSERT_TRUE(until([&] {
      return seen_[0].completed == verbs::kQueueDepth && seen_[1].messages.size() == kMessages;
    }));
    EXPECT_EQ(seen_[1].arrived.size(), static_cast<std::size_t>(verbs::kQueueDepth));
  }

  std::vector<std::byte> source_ = std::vector<std::byte>(kWindowBytes);
  std::array<std::vector<std::byte>, 2> windows_ = {std::vector<std::byte>(kWindowBytes),
                                                    std::vector<std::byte>(kWindowBytes)};
  std::array<Seen, 2> seen_;
  std::array<std::unique_ptr<Rail>, 2> rails_;
  PostedSends last_;
};

TEST_F(VerbsRailLists, ArePostedByOneCallAndSignalledNowAndThen) {
  posted();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(post(i));
  ASSERT_TRUE(post_message(7));
  EXPECT_FALSE(sender().flushed());
  fake_verbs::advance(10'000);
  EXPECT_EQ(posted().calls, 0);
  sender().submit();
  EXPECT_TRUE(sender().flushed());
  const PostedSends now = posted();
  EXPECT_EQ(now.calls, 1);
  EXPECT_EQ(now.requests, 21);
  EXPECT_EQ(now.signalled, 3) << "the eighth, the sixteenth and the last";
  EXPECT_EQ(now.inlined, 1) << "the message";
  sender().submit();
  EXPECT_EQ(posted().calls, 0) << "there is nothing to post";
  ASSERT_TRUE(until([&] { return seen_[0].completed == 20 && seen_[1].messages.size() == 1; }));
  EXPECT_EQ(seen_[1].messages[0], std::byte{7});
  for (std::uint32_t i = 0; i < 20; ++i) EXPECT_EQ(seen_[1].arrived[i], i);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(has_landed(i));
}

TEST_F(VerbsRailLists, ThatAreShortAreSignalledAtTheirEnd) {
  posted();
  for (int round = 1; round <= 20; ++round) {
    ASSERT_TRUE(post(0));
    if (round % 2 == 0) {
      ASSERT_TRUE(post(1));
    }
    sender().submit();
    EXPECT_EQ(posted().signalled, 1);
    ASSERT_TRUE(until([&] { return seen_[0].completed == round + round / 2; }));
  }
}

TEST_F(VerbsRailLists, OfLongChunksAreSignalledMoreOften) {
  posted();
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(post(i, verbs::kBytesPerSignal / 2));
  sender().submit();
  EXPECT_EQ(posted().signalled, 5);
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(post(i, verbs::kBytesPerSignal));
  sender().submit();
  EXPECT_EQ(posted().signalled, 9);
  ASSERT_TRUE(until([&] { return seen_[0].completed == 18; }));
}

TEST_F(VerbsRailLists, CompleteInOrderWhateverTheirLength) {
  // Places of the queue are used again and again, in lists that begin anywhere.
  int sent = 0;
  int messages = 0;
  for (int round = 0; round < 400; ++round) {
    for (int i = 0; i < 1 + round % 11 * 5; ++i) {
      if (post(sent % 1000)) ++sent;
    }
    if (round % 3 == 0 && post_message(1)) ++messages;
    sender().submit();
    for (int polls = 0; polls < round % 5; ++polls) {
      for (std::size_t rank = 0; rank < 2; ++rank) rails_[rank]->poll(seen_[rank]);
      // Whatever has completed has arrived there.
      ASSERT_LE(seen_[0].completed, sent);
    }
  }
  ASSERT_GT(sent, 10 * verbs::kSendDepth);
  ASSERT_TRUE(until([&] {
    return seen_[0].completed == sent &&
           seen_[1].messages.size() == static_cast<unsigned>(messages);
  }));
  ASSERT_EQ(seen_[1].arrived.size(), static_cast<std::size_t>(sent));
  for (int i = 0; i < sent; ++i)
    ASSERT_EQ(seen_[1].arrived[static_cast<std::size_t>(i)], static_cast<std::uint32_t>(i % 1000));
  expect_whole_queue();
}

TEST_F(VerbsRailLists, OfWhichOneIsRefusedTakeTheLinkDown) {
  for (int at = 1; at <= 12; ++at) {
    SCOPED_TRACE(at);
    TearDown();
    make(static_cast<std::uint64_t>(at));
    last_ = fake_verbs::posted_sends();
    fake_verbs::refuse_send(at, ENOMEM);
    for (int i = 0; i < 12; ++i) ASSERT_TRUE(post(i));
    sender().submit();
    EXPECT_EQ(posted().requests, at - 1);
    EXPECT_FALSE(sender().is_up(1));
    EXPECT_FALSE(post(12)) << "the link is to go down";
    EXPECT_FALSE(sender().flushed()) << "some will never leave";
    sender().submit();
    EXPECT_EQ(posted().calls, 0) << "what was refused is not tried again";
    ASSERT_TRUE(until([&] { return seen_[0].downs == 1; }));
    EXPECT_NE(seen_[0].reason.find("refused " + std::to_string(13 - at) + " of 12"),
              std::string::npos)
        << seen_[0].reason;
    EXPECT_TRUE(sender().flushed());
    EXPECT_LE(seen_[0].completed, at - 1);
    // Those before it may have landed, and nothing behind it has.
    for (int i = at - 1; i < 12; ++i) EXPECT_FALSE(has_landed(i)) << i;
    for (const std::uint32_t immediate : seen_[1].arrived)
      EXPECT_LT(immediate, static_cast<std::uint32_t>(at - 1));
    expect_whole_queue();
  }
}

TEST_F(VerbsRailLists, ThatFailInTheMiddleCompleteNoMoreThanHasLanded) {
  for (int at = 1; at <= 20; ++at) {
    SCOPED_TRACE(at);
    TearDown();
    make(static_cast<std::uint64_t>(at));
    // Of twenty, the eighth, the sixteenth and the last are signalled.
    fake_verbs::fail_send(at, IBV_WC_RETRY_EXC_ERR);
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(post(i));
    sender().submit();
    ASSERT_TRUE(until([&] { return seen_[0].downs == 1; })) << "nobody heard of it";
    EXPECT_NE(seen_[0].reason.find("a write failed"), std::string::npos) << seen_[0].reason;
    EXPECT_EQ(seen_[0].completed, (at - 1) / verbs::kSendsPerSignal * verbs::kSendsPerSignal);
    for (int i = 0; i < seen_[0].completed; ++i) EXPECT_TRUE(has_landed(i)) << i;
    expect_whole_queue();
  }
}

TEST_F(VerbsRailLists, GoWithTheirLink) {
  posted();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(post(i));
  sender().close(1, seen_[0]);
  EXPECT_TRUE(sender().flushed());
  sender().submit();
  EXPECT_EQ(posted().requests, 0);
  EXPECT_FALSE(has_landed(0));
  expect_whole_queue();
}

}  // namespace
}  // namespace allrail::transport
