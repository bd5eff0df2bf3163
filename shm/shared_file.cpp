#include "shm/shared_file.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "lib/base/error.hpp"
#include "shm/layout.hpp"

namespace allrail::shm {
namespace {

/// Where shm_open(3) keeps its files on Linux.
constexpr const char* kSharedMemoryFolder = "/dev/shm";
// Of memory that is reserved in one go: whole huge pages.
constexpr std::uint64_t kPieceBytes = 4ULL << 20;

std::uint64_t free_bytes(int fd) noexcept {
  struct statvfs status {};
  if (::fstatvfs(fd, &status) != 0) return 0;
  return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
}

/// The kernel takes pages one by one until it finds out, and gives them back then.
bool cannot_have_room(int fd, std::uint64_t wanted) noexcept {
  struct statvfs status {};
  return ::fstatvfs(fd, &status) == 0 && status.f_blocks > 0 &&
         wanted / status.f_frsize > status.f_bavail;
}

[[noreturn]] void fail_without_room(int fd, std::uint64_t wanted, int error_number,
                                    const SharedFileKind& kind) {
  base::fail(Code::ResourceLimit,
             "the {} needs {} bytes of shared memory and /dev/shm has {} left ({}): enlarge "
             "/dev/shm or {}",
             kind.name, wanted, free_bytes(fd), base::errno_text(error_number), kind.advice);
}

bool is_out_of_files(int error_number) noexcept {
  return error_number == EMFILE || error_number == ENFILE;
}

/// What is wrong is not the folder then.
[[noreturn]] void fail_without_file(const char* action, const SharedFileKind& kind,
                                    int error_number) {
  base::fail(Code::ResourceLimit, "{} the file of the {} failed: {}", action, kind.name,
             base::refusal_text(error_number));
}

[[noreturn]] void fail_to_map(std::uint64_t bytes, const SharedFileKind& kind) {
  base::fail(Code::ResourceLimit,
             "mapping the {} bytes of the {} failed: {}; {} or raise the limit on address space "
             "(ulimit -v)",
             bytes, kind.name, base::errno_text(errno), kind.advice);
}

}  // namespace

base::UniqueFd make_shared_file(std::uint64_t bytes, const SharedFileKind& kind) {
  // Without a name until it is complete: a rank that is killed before leaves nothing behind.
  base::UniqueFd file(::open(kSharedMemoryFolder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file) {
    const int error_number = errno;
    if (is_out_of_files(error_number)) fail_without_file("creating", kind, error_number);
    base::fail(Code::ResourceLimit,
               "creating a file in {} failed: {}; it must be a tmpfs that "
               "this user may write to",
               kSharedMemoryFolder, base::errno_text(error_number));
  }
  // The mode must not depend on the umask: others check it.
  if (::fchmod(file.get(), 0600) != 0) {
    base::fail(Code::ResourceLimit, "setting the mode of the {} failed: {}", kind.name,
               base::errno_text(errno));
  }
  resize_shared_file(file.get(), bytes, kind);
  return file;
}

void resize_shared_file(int fd, std::uint64_t bytes, const SharedFileKind& kind) {
  if (bytes > INT64_MAX) fail_without_room(fd, bytes, EFBIG, kind);
  if (::ftruncate(fd, static_cast<off_t>(bytes)) != 0) fail_without_room(fd, bytes, errno, kind);
}

void reserve_pages(int fd, std::uint64_t offset, std::uint64_t bytes, const SharedFileKind& kind) {
  check_room(fd, bytes, kind);
  allocate_pages(fd, offset, bytes, kind);
}

void check_room(int fd, std::uint64_t bytes, const SharedFileKind& kind) {
  if (cannot_have_room(fd, bytes)) fail_without_room(fd, bytes, ENOSPC, kind);
}

void allocate_pages(int fd, std::uint64_t offset, std::uint64_t bytes, const SharedFileKind& kind) {
  // Until Linux 6.11 a signal undoes all that a call has made: one that comes every 10 ms, as those
  // of profilers do, would never let a large one end.
  const std::uint64_t end = offset + bytes;
  for (std::uint64_t at = offset; at < end;) {
    const std::uint64_t next = std::min(end, (at / kPieceBytes + 1) * kPieceBytes);
    const int error_number =
        ::posix_fallocate(fd, static_cast<off_t>(at), static_cast<off_t>(next - at));
    if (error_number == EINTR) continue;
    if (error_number != 0) {
      (void)::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                        static_cast<off_t>(at - offset));
      fail_without_room(fd, bytes, error_number, kind);
    }
    at = next;
  }
}

void name_shared_file(int fd, const std::string& name, const SharedFileKind& kind) {
  const std::string from = fmt::format("/proc/self/fd/{}", fd);
  const std::string to = kSharedMemoryFolder + name;
  if (::linkat(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    base::fail(Code::ResourceLimit, "naming the {} {} failed: {}", kind.name, to,
               base::errno_text(errno));
  }
}

void remove_shared_file(const std::string& name) noexcept { (void)::shm_unlink(name.c_str()); }

base::UniqueFd open_shared_file(const std::string& name, std::uint64_t bytes,
                                const SharedFileKind& kind) {
  base::UniqueFd file(::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0));
  if (!file) {
    const int error_number = errno;
    if (is_out_of_files(error_number)) fail_without_file("opening", kind, error_number);
    base::fail(Code::Bootstrap,
               "opening the {} {} failed: {}; ranks of one node must see the same /dev/shm",
               kind.name, name, base::errno_text(error_number));
  }
  struct stat status {};
  base::check_minus_one(::fstat(file.get(), &status), "looking at a file in /dev/shm");
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() ||
      (status.st_mode & 07777U) != 0600U) {
    base::fail(Code::Bootstrap,
               "the {} {} belongs to user {} with mode {:o}, expected user {} with mode 600: it is "
               "not of this job, remove it and start again",
               kind.name, name, status.st_uid, status.st_mode & 07777U, ::geteuid());
  }
  if (static_cast<std::uint64_t>(status.st_size) != bytes) {
    base::fail(Code::Bootstrap,
               "the {} {} has {} bytes and this rank expects {}: the ranks of a node must run with "
               "equal ALLRAIL settings",
               kind.name, name, status.st_size, bytes);
  }
  return file;
}

base::Mapping map_part(int fd, std::uint64_t offset, std::uint64_t bytes,
                       const SharedFileKind& kind) {
  const int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) fail_to_map(bytes, kind);
  return {address, bytes};
}

std::shared_ptr<base::Mapping> map_shared(int fd, std::uint64_t bytes, const SharedFileKind& kind,
                                          std::uint64_t alignment_bytes) {
  if (fd < 0 || alignment_bytes == 0) {
    return std::make_shared<base::Mapping>(map_part(fd, 0, bytes, kind));
  }
  // Addresses that hold an aligned range of that size; what is left over on both sides goes back.
  const std::uint64_t held_bytes = bytes + alignment_bytes;
  void* held =
      ::mmap(nullptr, held_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (held == MAP_FAILED) fail_to_map(held_bytes, kind);
  const auto start = reinterpret_cast<std::uint64_t>(held);
  const std::uint64_t before = (alignment_bytes - start % alignment_bytes) % alignment_bytes;
  std::byte* wanted = static_cast<std::byte*>(held) + before;
  if (::mmap(wanted, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    const int error_number = errno;
    ::munmap(held, held_bytes);
    errno = error_number;
    fail_to_map(bytes, kind);
  }
  const std::uint64_t mapped_bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  if (before > 0) ::munmap(held, before);
  if (held_bytes > before + mapped_bytes) {
    ::munmap(wanted + mapped_bytes, held_bytes - before - mapped_bytes);
  }
  return std::make_shared<base::Mapping>(wanted, bytes);
}

}  // namespace allrail::shm
