#include "shm/shared_memory.hpp"

#include <cerrno>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/error.hpp"
#include "shm/layout.hpp"
#include "shm/process.hpp"
#include "shm/shared_file.hpp"

namespace allrail::shm {
namespace {

constexpr SharedFileKind kKind{"memory of a Buffer", "allocate less"};

void write_identity(int fd) {
  const ProcessIdentity identity = this_process();
  const ssize_t written = ::pwrite(fd, &identity, sizeof identity, 0);
  if (written != static_cast<ssize_t>(sizeof identity)) {
    base::fail(Code::ResourceLimit, "writing to the memory of a Buffer failed: {}",
               base::errno_text(errno));
  }
}

}  // namespace

SharedMemory SharedMemory::create(const std::string& name, std::uint64_t bytes) {
  SharedMemory memory;
  memory.file_ = make_shared_file(kPageBytes + bytes, kKind);
  memory.bytes_ = bytes;
  reserve_pages(memory.file_.get(), 0, kPageBytes, kKind);
  write_identity(memory.file_.get());
  if (!name.empty()) {
    name_shared_file(memory.file_.get(), name, kKind);
    memory.name_ = name;
    memory.creator_pid_ = ::getpid();
  }
  return memory;
}

SharedMemory SharedMemory::attach(const std::string& name, std::uint64_t bytes) {
  SharedMemory memory;
  memory.file_ = open_shared_file(name, kPageBytes + bytes, kKind);
  memory.bytes_ = bytes;
  return memory;
}

void SharedMemory::take(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes > 0) reserve_pages(file_.get(), kPageBytes + offset, bytes, kKind);
  mapping_ = map_shared(file_.get(), kPageBytes + bytes_, kKind);
  file_.reset();
}

std::span<std::byte> SharedMemory::bytes() const noexcept {
  if (!mapping_) return {};
  return mapping_->bytes().subspan(kPageBytes);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : file_(std::move(other.file_)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapping_(std::move(other.mapping_)),
      name_(std::exchange(other.name_, {})),
      creator_pid_(other.creator_pid_) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    unlink();
    file_ = std::move(other.file_);
    bytes_ = std::exchange(other.bytes_, 0);
    mapping_ = std::move(other.mapping_);
    name_ = std::exchange(other.name_, {});
    creator_pid_ = other.creator_pid_;
  }
  return *this;
}

SharedMemory::~SharedMemory() { unlink(); }

void SharedMemory::unlink() noexcept {
  if (name_.empty() || creator_pid_ != ::getpid()) return;
  ::shm_unlink(name_.c_str());
  name_.clear();
}

}  // namespace allrail::shm
