// What memory of a call is a Buffer's, and what is left when either end is gone.
#include "lib/buffer_table.hpp"

#include <random>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "shm/segment.hpp"
#include "transport/fake/fake_network.hpp"

namespace allrail {
namespace {

constexpr std::uint64_t kBytes = 10'000;

BufferTable::Entry make_entry(transport::Fabric& fabric, bool registered = true) {
  BufferTable::Entry entry;
  entry.memory = shm::SharedMemory::create("", kBytes + 5000);
  entry.memory.take_own(0, kBytes + 5000);
  entry.mine = entry.memory.own().first(kBytes);
  static std::uint64_t allocations = 0;
  entry.number = ++allocations;
  entry.registered = registered;
  if (registered) entry.window = fabric.register_window(entry.mine);
  return entry;
}

class BufferTableTest : public testing::Test {
 protected:
  BufferTableTest() {
    std::vector<std::unique_ptr<transport::Rail>> rails;
    rails.push_back(network_.make_rail(0, 0));
    fabric_ = std::make_unique<transport::Fabric>(0, 1, std::move(rails));
    table_ = std::make_unique<BufferTable>(gate_, fabric_.get(),
                                           [this](const BufferTable::Entry&) { ++let_go_; });
  }
  /// Adds one; its first byte.
  std::byte* add(bool registered = true) {
    BufferTable::Entry entry = make_entry(*fabric_, registered);
    std::byte* const begin = entry.mine.data();
    table_->add(std::move(entry));
    return begin;
  }

  transport::FakeNetwork network_{1, 1, std::vector<transport::FakeRailOptions>(1)};
  std::unique_ptr<transport::Fabric> fabric_;
  std::shared_ptr<EntryGate> gate_ = std::make_shared<EntryGate>();
  int let_go_ = 0;
  std::unique_ptr<BufferTable> table_;
};

TEST_F(BufferTableTest, AnyPartOfABufferIsFoundAndNothingBesideIt) {
  std::byte elsewhere{};
  EXPECT_EQ(table_->find({&elsewhere, 1}), nullptr);
  std::byte* const first = add();
  std::byte* const second = add();
  for (std::byte* const begin : {first, second}) {
    for (const auto& [offset, bytes] : std::initializer_list<std::pair<std::size_t, std::size_t>>{
             {0, kBytes}, {0, 1}, {kBytes - 1, 1}, {4097, 1000}}) {
      const BufferTable::Entry* found = table_->find({begin + offset, bytes});
      ASSERT_NE(found, nullptr) << offset;
      EXPECT_EQ(found->mine.data(), begin);
    }
    EXPECT_EQ(table_->find({begin, kBytes + 1}), nullptr) << "a part of it is not";
    EXPECT_EQ(table_->find({begin + kBytes, 1}), nullptr) << "behind it";
    EXPECT_EQ(table_->find({begin - 1, 2}), nullptr) << "before it";
    EXPECT_EQ(table_->find({begin, 0}), nullptr) << "no bytes lie nowhere";
  }
  EXPECT_EQ(table_->find({&elsewhere, 1}), nullptr);
}

TEST_F(BufferTableTest, OneThatEndedIsOrdinaryAgainAndTheOthersAreNot) {
  std::byte* const first = add();
  std::byte* const second = add();
  EXPECT_EQ(table_->registered_bytes(), 2 * kBytes);
  table_->remove(first + 1);  // not one that began there
  EXPECT_EQ(table_->registered_bytes(), 2 * kBytes);
  table_->remove(first);
  EXPECT_EQ(table_->registered_bytes(), kBytes);
  EXPECT_EQ(table_->find({first, 1}), nullptr);
  EXPECT_NE(table_->find({second, 1}), nullptr);
}

TEST_F(BufferTableTest, WhatWasFoundHoldsUntilABufferComesOrGoes) {
  std::uint64_t version = table_->version();
  const auto has_changed = [&] { return std::exchange(version, table_->version()) != version; };
  std::byte* const first = add();
  EXPECT_TRUE(has_changed()) << "one has come";
  std::byte* const second = add(false);
  EXPECT_TRUE(has_changed()) << "another one has come";
  table_->find({first, 1});
  table_->remove(first + 1);  // not one that began there
  EXPECT_FALSE(has_changed());
  table_->remove(first);
  EXPECT_TRUE(has_changed()) << "one has gone";
  table_->remove(second);
  EXPECT_TRUE(has_changed()) << "all have gone";
  add();
  version = table_->version();
  table_->close();
  EXPECT_TRUE(has_changed()) << "none is registered any more";
}

TEST_F(BufferTableTest, OneThatCouldNotBeRegisteredIsOrdinary) {
  std::byte* const begin = add(false);
  EXPECT_EQ(table_->find({begin, 1}), nullptr);
  EXPECT_EQ(table_->registered_bytes(), 0U);
  table_->remove(begin);
}

TEST_F(BufferTableTest, ANodeBufferIsFoundAlsoWhereItIsNotRegistered) {
  for (const bool registered : {true, false}) {
    BufferTable::Entry entry = make_entry(*fabric_, registered);
    entry.node_buffer = 3;
    std::byte* const begin = entry.mine.data();
    table_->add(std::move(entry));
    const BufferTable::Entry* found = table_->find({begin + 1, 10});
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->node_buffer, 3U);
    EXPECT_EQ(found->registered, registered);
    EXPECT_EQ(table_->registered_bytes(), registered ? kBytes : 0);
    table_->remove(begin);
  }
}

TEST_F(BufferTableTest, ANodeBufferCountsWhereItsKeysAre) {
  BufferTable::Entry entry = make_entry(*fabric_, false);
  entry.registered = true;  // by the first rank of the node
  entry.node_buffer = 1;
  std::byte* const begin = entry.mine.data();
  table_->add(std::move(entry));
  EXPECT_EQ(table_->registered_bytes(), 0U);
  table_->remove(begin);
}

/// Two ranks of one node, each with a table.
class SharedParts : public testing::Test {
 protected:
  BufferTable::Entry entry_of(shm::SharedMemory memory, std::uint64_t offset,
                              std::uint64_t bytes) const {
    BufferTable::Entry entry;
    entry.memory = std::move(memory);
    entry.memory.take_own(offset, bytes);
    entry.mine = entry.memory.own();
    entry.registered = true;
    entry.number = number_;
    return entry;
  }
  void allocate(std::uint64_t of_one, std::uint64_t of_other) {
    const std::string name = shm::NodeSegment::make_name(std::random_device{}());
    shm::SharedMemory memory = shm::SharedMemory::create(name, 2 * kPart);
    BufferTable::Entry other =
        entry_of(shm::SharedMemory::attach(name, 2 * kPart), kPart, of_other);
    memory.unlink();
    BufferTable::Entry one = entry_of(std::move(memory), 0, of_one);
    begin_of_one_ = one.mine.data();
    begin_of_other_ = other.mine.data();
    one_.add(std::move(one));
    other_.add(std::move(other));
  }

  static constexpr std::uint64_t kPart = 8192;
  std::uint64_t number_ = 7;
  std::shared_ptr<EntryGate> gate_ = std::make_shared<EntryGate>();
  BufferTable one_{gate_, nullptr, nullptr, 2};
  BufferTable other_{gate_, nullptr, nullptr, 2};
  std::byte* begin_of_one_ = nullptr;
  std::byte* begin_of_other_ = nullptr;
};

TEST_F(SharedParts, WhatOneNamesTheOtherFinds) {
  allocate(5000, 6000);
  begin_of_other_[1234] = std::byte{5};
  const coll::SharedPlace place = other_.place_of({begin_of_other_ + 1234, 10});
  EXPECT_EQ(place.buffer, 7U);
  EXPECT_EQ(place.offset, kPart + 1234);
  EXPECT_EQ(one_.parts_of(7)[place.offset], std::byte{5});
  EXPECT_EQ(one_.parts_of(7).size(), 2 * kPart);
  EXPECT_TRUE(one_.parts_of(8).empty());
  EXPECT_EQ(one_.place_of({begin_of_other_, 1}).buffer, 0U) << "it is the other's";
}

TEST_F(SharedParts, StayUntilAllHaveEndedTheirs) {
  allocate(5000, 6000);
  begin_of_other_[0] = std::byte{5};
  one_.remove(begin_of_one_);
  EXPECT_EQ(one_.place_of({begin_of_one_, 1}).buffer, 0U);
  ASSERT_EQ(one_.parts_of(7).size(), 2 * kPart);
  EXPECT_EQ(one_.parts_of(7)[kPart], std::byte{5});
  other_.remove(begin_of_other_);
  EXPECT_TRUE(other_.parts_of(7).empty());
  number_ = 8;
  allocate(1, 1);
  EXPECT_TRUE(one_.parts_of(7).empty()) << "it is kept for ever";
  EXPECT_FALSE(one_.parts_of(8).empty());
}

TEST_F(SharedParts, ARankWithoutAPartFindsThoseOfOthers) {
  allocate(0, 6000);
  begin_of_other_[0] = std::byte{5};
  ASSERT_EQ(one_.parts_of(7).size(), 2 * kPart);
  EXPECT_EQ(one_.parts_of(7)[kPart], std::byte{5});
  other_.remove(begin_of_other_);
  EXPECT_TRUE(other_.parts_of(7).empty());
}

TEST_F(BufferTableTest, TheMemoryOutlivesTheCommunicator) {
  std::byte* const begin = add();
  table_->close();
  fabric_.reset();
  begin[kBytes - 1] = std::byte{7};
  EXPECT_EQ(table_->find({begin, 1}), nullptr);
  table_->remove(begin);
}

/// Other communicators of the job may use it.
TEST_F(BufferTableTest, TheEndOfMemoryIsToldAsLongAsTheJobLives) {
  std::byte* const first = add();
  std::byte* const second = add();
  std::byte* const third = add();
  table_->remove(first);
  EXPECT_EQ(let_go_, 1);
  table_->close();
  table_->remove(second);
  EXPECT_EQ(let_go_, 2);
  gate_.reset();
  table_->remove(third);
  EXPECT_EQ(let_go_, 2);
}

TEST_F(BufferTableTest, AnotherThreadCannotEndOneWhileACallUsesTheRails) {
  std::byte* const begin = add();
  {
    const EntryGuard call(*gate_);
    table_->remove(begin);
    EXPECT_NE(table_->find({begin, 1}), nullptr);
  }
  table_->remove(begin);
  EXPECT_EQ(table_->find({begin, 1}), nullptr);
}

}  // namespace
}  // namespace allrail
