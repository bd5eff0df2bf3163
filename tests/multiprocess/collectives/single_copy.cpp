// Memory that the ranks of a node cannot read of each other: unreadable, forbid-late.
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {
namespace {

/// One allgather, and one more after it where that was an error.
int call_twice(allrail::Communicator& communicator, std::span<const unsigned char> send,
               std::span<unsigned char> receive) {
  const std::string prefix = "rank " + std::to_string(communicator.rank());
  try {
    communicator.allgather(send, receive);
    say(prefix + " call: no error");
    return 0;
  } catch (const allrail::Error& error) {
    say(prefix + " error: " + describe(error));
  }
  try {
    communicator.barrier();
    say(prefix + " again: no error");
  } catch (const allrail::Error& error) {
    say(prefix + " again: " + describe(error));
  }
  return kErrorCode;
}

}  // namespace

void forbid_reading() {
  std::array<sock_filter, 4> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) != 0) {
    throw WrongBytes(std::string("seccomp: ") + std::strerror(errno));
  }
}

void hide_memory() {
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) {
    throw WrongBytes(std::string("PR_SET_DUMPABLE: ") + std::strerror(errno));
  }
}

/// In place; a page in the middle of the block of rank 1 cannot be read by anybody.
int run_unreadable(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  const auto bytes = static_cast<std::size_t>(arguments.number("bytes", 1 << 20));
  const auto ranks = static_cast<std::size_t>(communicator.size());
  void* const memory =
      ::mmap(nullptr, ranks * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw WrongBytes(std::string("mmap: ") + std::strerror(errno));
  const std::span receive(static_cast<unsigned char*>(memory), ranks * bytes);
  const auto block = receive.subspan(static_cast<std::size_t>(communicator.rank()) * bytes, bytes);
  fill_pattern(block, communicator.rank(), 1);
  constexpr std::size_t kPage = 4096;
  const std::size_t middle = bytes / 2 / kPage * kPage;
  if (communicator.rank() == 1) ::mprotect(block.data() + middle, kPage, PROT_NONE);
  communicator.barrier();
  return call_twice(communicator, block, receive);
}

/// Rank 0 is refused what it was allowed at start-up.
int run_forbid_late(const Arguments& arguments) {
  auto communicator = allrail::Communicator::world();
  const auto bytes = static_cast<std::size_t>(arguments.number("bytes", 1 << 20));
  std::vector<unsigned char> send(bytes);
  std::vector<unsigned char> receive(bytes * static_cast<std::size_t>(communicator.size()));
  communicator.allgather(send, receive);
  if (communicator.rank() == 0) forbid_reading();
  return call_twice(communicator, send, receive);
}

}  // namespace probe
