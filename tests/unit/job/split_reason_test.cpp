// Why a split fails is told to the end, also where that takes many words.
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "include/allrail/communicator.hpp"
#include "tests/counts/in_process_bootstrap.hpp"

namespace {

std::atomic<bool> is_full{false};
// As long as names of hosts may be.
const std::string kHost(64, 'h');

}  // namespace

/// In place of the C library's: the host has a long name.
extern "C" [[gnu::visibility("default")]] int gethostname(char* name, std::size_t bytes) noexcept {
  (void)::strncpy(name, kHost.c_str(), bytes);
  return 0;
}

/// The same: nothing is left of a file system where a test says so.
extern "C" [[gnu::visibility("default")]] int statvfs(const char* path,
                                                      struct statvfs* found) noexcept {
  const int folder = ::open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int result = ::fstatvfs(folder, found);
  ::close(folder);
  if (is_full) found->f_bavail = 0;
  return result;
}

namespace allrail {
namespace {

TEST(SplitReason, IsToldToItsEnd) {
  Options options;
  options.rails = "127.0.0.1";
  options.node_memory_bytes = 1 << 20;
  options.timeout = std::chrono::seconds(20);
  is_full = false;
  counts::run_as_ranks(2, [&options](int rank) {
    auto communicator = Communicator::world(options);
    communicator.barrier();
    is_full = true;
    try {
      const auto part = communicator.split(0, rank);
      ADD_FAILURE() << "there is no memory for it";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_EQ(error.code(), Code::ResourceLimit) << text;
      EXPECT_NE(text.find("split: rank 0 cannot start its new communicator"), std::string::npos);
      EXPECT_NE(text.find("host " + kHost + " (rank 0) has 0 bytes left"), std::string::npos);
      EXPECT_TRUE(text.ends_with("ALLRAIL_NODE_MEMORY where it is above 1M")) << text;
    }
    communicator.barrier();
  });
  is_full = false;
}

}  // namespace
}  // namespace allrail
