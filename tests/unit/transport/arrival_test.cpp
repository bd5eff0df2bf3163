#include "transport/arrival.hpp"

#include <gtest/gtest.h>

#include "include/allrail/error.hpp"

namespace allrail::transport {
namespace {

using Result = ArrivalTable::Result;

std::uint64_t expect(ArrivalTable& table, std::uint64_t bytes) {
  bool mismatch = false;
  const std::uint64_t number = table.expect(bytes, mismatch);
  EXPECT_FALSE(mismatch);
  return number;
}

TEST(Arrival, APutHasArrivedWhenItsBytesHave) {
  ArrivalTable table;
  EXPECT_EQ(table.add(make_immediate(0, 1), 50), Result::New);  // before it is announced
  EXPECT_EQ(expect(table, 150), 0U);
  EXPECT_EQ(table.missing(), 1);
  EXPECT_FALSE(table.first_chunk_arrived(0));
  EXPECT_FALSE(table.arrived(0));
  EXPECT_EQ(table.add(make_immediate(0, 0), 100), Result::New);
  EXPECT_TRUE(table.first_chunk_arrived(0));
  EXPECT_TRUE(table.arrived(0));
  EXPECT_EQ(table.missing(), 0);
}

TEST(Arrival, DuplicatesAreNotCounted) {
  ArrivalTable table;
  expect(table, 200);
  EXPECT_EQ(table.add(make_immediate(0, 0), 100), Result::New);
  EXPECT_FALSE(table.wanted(make_immediate(0, 0)));
  EXPECT_EQ(table.add(make_immediate(0, 0), 100), Result::Duplicate);
  EXPECT_FALSE(table.arrived(0));
  EXPECT_EQ(table.add(make_immediate(0, 1), 100), Result::New);
  table.consume(0);
  EXPECT_EQ(table.add(make_immediate(0, 1), 100), Result::Duplicate);
  EXPECT_TRUE(table.holds(make_immediate(0, 1)));
}

TEST(Arrival, MoreBytesThanExpectedIsAMismatch) {
  ArrivalTable table;
  expect(table, 10);
  EXPECT_EQ(table.add(make_immediate(0, 0), 11), Result::Mismatch);
  EXPECT_EQ(table.add(make_immediate(1, 0), 11), Result::New);
  bool mismatch = false;
  table.expect(10, mismatch);
  EXPECT_TRUE(mismatch);
}

TEST(Arrival, WhatIsOutOfRangeIsInvalid) {
  ArrivalTable table;
  EXPECT_EQ(table.add(make_immediate(kMaxOpenPuts, 0), 1), Result::Invalid);
  EXPECT_EQ(table.add(make_immediate(0, kMaxChunksPerPut), 1), Result::Invalid);
  EXPECT_EQ(table.add(make_immediate(4095, 0), 1), Result::Invalid);
  EXPECT_FALSE(table.holds(make_immediate(4095, 0)));
  EXPECT_FALSE(table.wanted(make_immediate(0, kMaxChunksPerPut)));
}

TEST(Arrival, PutsAreConsumedInAnyOrder) {
  ArrivalTable table;
  for (std::uint64_t i = 0; i < 3; ++i) {
    expect(table, 1);
    table.add(make_immediate(i, 0), 1);
  }
  table.consume(2);
  table.consume(0);
  EXPECT_EQ(table.lowest(), 1U);
  EXPECT_EQ(table.add(make_immediate(2, 0), 1), Result::Duplicate);
  table.consume(1);
  EXPECT_EQ(table.lowest(), 3U);
  EXPECT_THROW(table.consume(1), Error);
}

TEST(Arrival, AtMostTheOpenPutsAreExpected) {
  ArrivalTable table;
  for (int i = 0; i < kMaxOpenPuts; ++i) expect(table, 1);
  EXPECT_FALSE(table.can_expect());
  bool mismatch = false;
  EXPECT_THROW(table.expect(1, mismatch), Error);
}

TEST(Arrival, NumbersWrapOnTheWire) {
  ArrivalTable table;
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    ASSERT_EQ(expect(table, 3000), i);
    // Bits of an earlier put in the same place must be gone.
    const auto index = static_cast<std::uint32_t>(i % kMaxChunksPerPut);
    ASSERT_EQ(table.add(make_immediate(i, index), 3000), Result::New);
    ASSERT_TRUE(table.arrived(i));
    table.consume(i);
    ASSERT_EQ(table.add(make_immediate(i, index), 3000), Result::Duplicate);
    if (i >= 100) {
      ASSERT_EQ(table.add(make_immediate(i - 100, 1), 3000), Result::Duplicate);
    }
  }
}

}  // namespace
}  // namespace allrail::transport
