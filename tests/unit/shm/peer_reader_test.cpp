// Memory of another process, read with one copy.
#include "shm/peer_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace allrail::shm {
namespace {

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

class PeerReaderTest : public testing::Test {
 protected:
  PeerReaderTest() : theirs_(100'001) {
    std::iota(theirs_.begin(), theirs_.end(), static_cast<unsigned char>(1));
    child_ = ::fork();
    if (child_ == 0) {
      ::pause();
      ::_exit(0);
    }
    // What the child has from now on differs.
    mine_ = theirs_;
    std::ranges::fill(theirs_, static_cast<unsigned char>(0));
    reader_ = PeerReader({::getpid(), child_});
  }
  ~PeerReaderTest() override { end_child(); }
  void end_child() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = 0;
  }
  int read(std::uint64_t address, std::vector<unsigned char>& to) const {
    return reader_.read(1, address, reinterpret_cast<std::byte*>(to.data()), to.size());
  }

  std::vector<unsigned char> theirs_, mine_;
  pid_t child_ = 0;
  PeerReader reader_;
};

TEST_F(PeerReaderTest, BringsWhatLiesInTheOtherProcess) {
  std::vector<unsigned char> got(theirs_.size());
  const int error_number = read(address_of(theirs_.data()), got);
  if (error_number == EPERM || error_number == ENOSYS) GTEST_SKIP() << "it is forbidden here";
  ASSERT_EQ(error_number, 0);
  EXPECT_EQ(got, mine_);
}

TEST_F(PeerReaderTest, SaysWhatFailed) {
  void* const memory =
      ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(::munmap(static_cast<std::byte*>(memory) + 4096, 4096), 0);
  // In this process, which it may always read: the first page is there, the second is not.
  std::vector<unsigned char> got(8192, 1);
  auto* const to = reinterpret_cast<std::byte*>(got.data());
  const int error_number = reader_.read(0, address_of(memory), to, got.size());
  if (error_number == EPERM || error_number == ENOSYS) GTEST_SKIP() << "it is forbidden here";
  EXPECT_EQ(error_number, EFAULT);
  EXPECT_EQ(got[4095], 0);
  ::munmap(memory, 4096);
  EXPECT_EQ(reader_.read(0, address_of(mine_.data()), to, 0), 0) << "nothing is always there";
}

TEST_F(PeerReaderTest, AProcessThatHasEndedIsNotThere) {
  end_child();
  std::vector<unsigned char> got(10);
  const int error_number = read(address_of(theirs_.data()), got);
  if (error_number == EPERM || error_number == ENOSYS) GTEST_SKIP() << "it is forbidden here";
  EXPECT_EQ(error_number, ESRCH);
}

}  // namespace
}  // namespace allrail::shm
