// Part of a benchmark for tests: on the rank that WRONG_BYTE_RANK names, one byte of every long
// payload that is read from a socket is not what the peer has sent.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/// The first piece is where a payload goes, the second what comes behind it.
extern "C" [[gnu::visibility("default")]] ssize_t readv(int fd, const iovec* pieces, int count) {
  constexpr std::size_t kLong = 4096;  // in the middle of that is no header
  const auto got = static_cast<ssize_t>(::syscall(SYS_readv, fd, pieces, count));
  const char* const odd = std::getenv("WRONG_BYTE_RANK");
  const char* const rank = std::getenv("PMIX_RANK");
  if (odd == nullptr || rank == nullptr || std::string_view(odd) != rank) return got;
  if (got <= 0 || count < 1) return got;
  const std::size_t filled = std::min(static_cast<std::size_t>(got), pieces[0].iov_len);
  if (filled >= kLong) static_cast<unsigned char*>(pieces[0].iov_base)[filled / 2] ^= 1U;
  return got;
}
