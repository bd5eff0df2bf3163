// The private data of verbs connections: what fits is read back, and nothing else is believed.
#include "transport/verbs/hello.hpp"

#include <random>

#include <gtest/gtest.h>

namespace allrail::transport::verbs {
namespace {

class HelloTest : public testing::Test {
 protected:
  HelloTest() {
    hello_.rank = 3;
    hello_.rail = 6;
    hello_.probes = true;
    hello_.window_address = 0x7f0012345678;
    hello_.window_key = 0xabcdef01;
    hello_.credit_address = 0x7f00deadbee8;
    hello_.credit_key = 77;
  }
  HelloContext context(int to_rank = 5, int rail = 1) const { return {secret_, 42, to_rank, rail}; }

  JobSecret secret_ = JobSecret::random();
  Hello hello_;
};

TEST_F(HelloTest, ComesBackAsItWas) {
  const auto got = decode(encode(hello_, context(), {}), context(), {});
  ASSERT_TRUE(got);
  EXPECT_EQ(*got, hello_);
}

TEST_F(HelloTest, IsReadFromDataThatTheKernelPadded) {
  const HelloBytes bytes = encode(hello_, context(), {});
  std::vector<std::byte> padded(bytes.begin(), bytes.end());
  padded.resize(196);
  EXPECT_TRUE(decode(padded, context(), {}));
}

TEST_F(HelloTest, IsOfOneJobRankAndRailOnly) {
  const HelloBytes bytes = encode(hello_, context(), {});
  EXPECT_FALSE(decode(bytes, context(6), {})) << "another rank";
  EXPECT_FALSE(decode(bytes, context(5, 0), {})) << "another rail";
  HelloContext other_job = context();
  other_job.job_hash = 43;
  EXPECT_FALSE(decode(bytes, other_job, {}));
  const JobSecret other = JobSecret::random();
  EXPECT_FALSE(decode(bytes, {other, 42, 5, 1}, {})) << "another secret";
}

TEST_F(HelloTest, AnAnswerAnswersOneRequest) {
  const HelloBytes request = encode(hello_, context(), {});
  Hello mine = hello_;
  mine.rank = 5;
  const HelloBytes answer = encode(mine, context(3), request);
  EXPECT_TRUE(decode(answer, context(3), request));
  EXPECT_FALSE(decode(answer, context(3), {})) << "an answer is no request";
  hello_.credit_key = 78;
  EXPECT_FALSE(decode(answer, context(3), encode(hello_, context(), {}))) << "another request";
}

TEST_F(HelloTest, IsNotBelievedWithOneBitChanged) {
  const HelloBytes bytes = encode(hello_, context(), {});
  int believed = 0;
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    HelloBytes changed = bytes;
    changed[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    if (decode(changed, context(), {})) ++believed;
  }
  // Six bytes between body and MAC are padding.
  EXPECT_EQ(believed, 6 * 8);
}

TEST_F(HelloTest, GarbageIsNoHello) {
  std::mt19937_64 random(1);
  for (std::size_t length = 0; length < 200; ++length) {
    std::vector<std::byte> garbage(length);
    for (std::byte& byte : garbage) byte = static_cast<std::byte>(random());
    EXPECT_FALSE(decode(garbage, context(), {})) << length << " bytes";
  }
}

}  // namespace
}  // namespace allrail::transport::verbs
