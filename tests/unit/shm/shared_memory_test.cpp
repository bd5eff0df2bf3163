// Memory that ranks of a node map beside their segment: its name, its pages, its parts.
#include "shm/shared_memory.hpp"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <random>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "include/allrail/error.hpp"
#include "shm/segment.hpp"

namespace {
// What the system does while a signal comes that often: up to so much is made between two of them.
off_t most_between_signals = 0;  // 0: there are no signals
}  // namespace

/// Stands for that of the C library, which the code under test calls.
extern "C" int posix_fallocate(int file, off_t offset, off_t bytes) {
  if (most_between_signals != 0 && bytes > most_between_signals) return EINTR;
  return ::fallocate(file, 0, offset, bytes) == 0 ? 0 : errno;
}

namespace allrail::shm {
namespace {

constexpr std::uint64_t kBytes = 3 * 4096;

class SharedMemoryTest : public testing::Test {
 protected:
  void SetUp() override { name_ = NodeSegment::make_name(std::random_device{}()); }
  void TearDown() override {
    EXPECT_FALSE(exists());
    ::unlink(path().c_str());
  }
  std::string path() const { return "/dev/shm" + name_; }
  bool exists() const { return std::filesystem::exists(std::filesystem::symlink_status(path())); }
  std::string name_;
};

TEST_F(SharedMemoryTest, EveryRankSeesThePartsOfAll) {
  SharedMemory one = SharedMemory::create(name_, kBytes);
  SharedMemory other = SharedMemory::attach(name_, kBytes);
  struct stat status {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
  one.take(0, 5000);
  other.take(8192, 4096);
  one.unlink();
  EXPECT_FALSE(exists());
  ASSERT_EQ(one.bytes().size(), kBytes);
  one.bytes()[4999] = std::byte{1};
  other.bytes()[8192] = std::byte{2};
  EXPECT_EQ(other.bytes()[4999], std::byte{1});
  EXPECT_EQ(one.bytes()[8192], std::byte{2});
}

TEST_F(SharedMemoryTest, AnOwnPartEndsWhileTheOthersStay) {
  SharedMemory one = SharedMemory::create(name_, kBytes);
  SharedMemory other = SharedMemory::attach(name_, kBytes);
  one.take_own(0, 5000);
  other.take_own(8192, 4096);
  one.unlink();
  EXPECT_EQ(one.own().size(), 5000U);
  EXPECT_EQ(other.own_offset(), 8192U);
  one.own()[4999] = std::byte{1};
  other.own()[0] = std::byte{2};
  EXPECT_EQ(other.bytes()[4999], std::byte{1});
  EXPECT_EQ(one.bytes()[8192], std::byte{2});

  const std::byte* const place = one.own().data();
  one.leave();
  EXPECT_TRUE(one.own().empty());
  unsigned char resident = 0;
  EXPECT_EQ(::mincore(const_cast<std::byte*>(place), 1, &resident), -1) << "it is still mapped";
  EXPECT_EQ(other.bytes()[4999], std::byte{0}) << "its pages did not go back";
  EXPECT_EQ(one.bytes()[8192], std::byte{2});
  EXPECT_EQ(one.left(), 1);
  EXPECT_EQ(other.left(), 1);
  other.leave();
  EXPECT_EQ(one.left(), 2);
}

TEST_F(SharedMemoryTest, IsReservedThoughASignalComesNowAndThen) {
  constexpr std::uint64_t kLarge = 20U << 20;
  SharedMemory memory = SharedMemory::create("", kLarge);
  most_between_signals = 8 << 20;
  ::alarm(20);  // what an interrupted call made is gone, so it can go on for ever
  memory.take(4096, kLarge - 4096);
  ::alarm(0);
  most_between_signals = 0;
  memory.bytes()[kLarge - 1] = std::byte{1};
}

TEST_F(SharedMemoryTest, WithoutANameThereIsNothingToFind) {
  SharedMemory alone = SharedMemory::create("", kBytes);
  alone.take(0, kBytes);
  alone.bytes()[kBytes - 1] = std::byte{1};
  EXPECT_FALSE(exists());
}

TEST_F(SharedMemoryTest, AnAttachedRankDoesNotRemoveTheNameAndTheCreatorDoes) {
  SharedMemory moved;
  {
    SharedMemory one = SharedMemory::create(name_, kBytes);
    { const SharedMemory other = SharedMemory::attach(name_, kBytes); }
    EXPECT_TRUE(exists());
    moved = std::move(one);
  }
  EXPECT_TRUE(exists());
  moved = SharedMemory();
  EXPECT_FALSE(exists());
}

TEST_F(SharedMemoryTest, WhatExistsIsNotTakenOverAndAnotherSizeIsRefused) {
  const SharedMemory one = SharedMemory::create(name_, kBytes);
  EXPECT_THROW(SharedMemory::create(name_, kBytes), Error);
  EXPECT_THROW(SharedMemory::attach(name_, kBytes + 1), Error);
  EXPECT_TRUE(exists());
}

TEST_F(SharedMemoryTest, PagesThatCannotBeHadAreAnErrorAndNoSignal) {
  SharedMemory one = SharedMemory::create("", std::uint64_t{1} << 50);
  try {
    one.take(0, std::uint64_t{1} << 50);
    FAIL() << "a pebibyte of shared memory";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::ResourceLimit);
    EXPECT_NE(std::string(error.what()).find("/dev/shm"), std::string::npos) << error.what();
  }
}

TEST_F(SharedMemoryTest, TheNameOfAKilledCreatorIsRemoved) {
  const pid_t child = ::fork();
  if (child == 0) {
    const SharedMemory one = SharedMemory::create(name_, kBytes);
    ::raise(SIGKILL);
    ::_exit(1);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(exists());
  EXPECT_GE(remove_leftovers(), 1);
}

}  // namespace
}  // namespace allrail::shm
