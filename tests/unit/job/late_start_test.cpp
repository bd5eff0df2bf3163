// A rank that is late in the last step of start-up, where ranks try to read each other's memory.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "include/allrail/communicator.hpp"
#include "tests/counts/in_process_bootstrap.hpp"

namespace {

using namespace std::chrono_literals;

thread_local bool is_late = false;
std::atomic<bool> others_are_told{false};

}  // namespace

/// In place of the C library's: a rank that is late comes when the others have given up.
extern "C" [[gnu::visibility("default")]] ssize_t process_vm_readv(pid_t pid, const iovec* here,
                                                                   unsigned long here_count,
                                                                   const iovec* there,
                                                                   unsigned long there_count,
                                                                   unsigned long flags) noexcept {
  for (int i = 0; is_late && !others_are_told && i < 2000; ++i) std::this_thread::sleep_for(10ms);
  return ::syscall(SYS_process_vm_readv, pid, here, here_count, there, there_count, flags);
}

namespace allrail {
namespace {

TEST(LateStart, NamesItselfAndTheSettingThatBoundsIt) {
  Options options;
  options.node_memory_bytes = 1 << 20;
  options.bootstrap_timeout = 4s;  // long for a machine that is busy elsewhere
  options.timeout = 30s;
  others_are_told = false;
  counts::run_as_ranks(2, [&options](int rank) {
    is_late = rank == 1;
    try {
      auto communicator = Communicator::world(options);
      // What it found of the others was there for it.
      EXPECT_EQ(rank, 1) << "started";
      communicator.barrier();
      ADD_FAILURE() << "rank " << rank << " goes on";
    } catch (const Error& error) {
      if (rank == 0) others_are_told = true;
      const std::string text = error.what();
      EXPECT_EQ(error.code(), Code::Timeout) << text;
      EXPECT_EQ(error.peer(), 1) << text;
      for (const char* part : {"rank 0: start-up did not end within its timeout",
                               "waiting for rank 1", "raise ALLRAIL_BOOTSTRAP_TIMEOUT"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
      }
    }
  });
}

}  // namespace
}  // namespace allrail
