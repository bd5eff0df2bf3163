#include "shm/shared_memory.hpp"

#include <atomic>
#include <cerrno>
#include <new>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "lib/base/error.hpp"
#include "shm/layout.hpp"
#include "shm/process.hpp"
#include "shm/shared_file.hpp"

namespace allrail::shm {
namespace {

constexpr SharedFileKind kBufferMemory{"memory of a Buffer", "allocate less"};
// In the first page, behind the identity of its maker: how many ranks have left. A new file is all
// zeros.
constexpr std::size_t kLeftAt = 128;
static_assert(sizeof(ProcessIdentity) <= kLeftAt);

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
  memory.file_ = make_shared_file(kPageBytes + bytes, kBufferMemory);
  memory.bytes_ = bytes;
  reserve_pages(memory.file_.get(), 0, kPageBytes, kBufferMemory);
  write_identity(memory.file_.get());
  if (!name.empty()) {
    name_shared_file(memory.file_.get(), name, kBufferMemory);
    memory.name_ = name;
    memory.creator_pid_ = ::getpid();
  }
  return memory;
}

SharedMemory SharedMemory::attach(const std::string& name, std::uint64_t bytes) {
  SharedMemory memory;
  memory.file_ = open_shared_file(name, kPageBytes + bytes, kBufferMemory);
  memory.bytes_ = bytes;
  return memory;
}

void SharedMemory::take(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes > 0) reserve_pages(file_.get(), kPageBytes + offset, bytes, kBufferMemory);
  mapping_ = map_shared(file_.get(), kPageBytes + bytes_, kBufferMemory);
  file_.reset();
}

void SharedMemory::take_own(std::uint64_t offset, std::uint64_t bytes) {
  if (bytes > 0) {
    reserve_pages(file_.get(), kPageBytes + offset, bytes, kBufferMemory);
    own_ = map_part(file_.get(), kPageBytes + offset, bytes, kBufferMemory);
    own_offset_ = offset;
  }
  take(offset, 0);
}

std::span<std::byte> SharedMemory::own() const noexcept { return own_.bytes(); }

void SharedMemory::leave() noexcept {
  if (!mapping_) return;
  // Only a matter of memory: where the system refuses, it goes back when nobody maps it any more.
  if (own_.size() > 0) ::madvise(bytes().data() + own_offset_, own_.size(), MADV_REMOVE);
  own_.reset();
  left_count().fetch_add(1, std::memory_order_acq_rel);
}

int SharedMemory::left() const noexcept {
  return mapping_ ? left_count().load(std::memory_order_acquire) : 0;
}

std::atomic<std::int32_t>& SharedMemory::left_count() const noexcept {
  return *std::launder(
      reinterpret_cast<std::atomic<std::int32_t>*>(mapping_->bytes().data() + kLeftAt));
}

std::span<std::byte> SharedMemory::bytes() const noexcept {
  if (!mapping_) return {};
  return mapping_->bytes().subspan(kPageBytes);
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : file_(std::move(other.file_)),
      bytes_(std::exchange(other.bytes_, 0)),
      mapping_(std::move(other.mapping_)),
      own_(std::move(other.own_)),
      own_offset_(other.own_offset_),
      name_(std::exchange(other.name_, {})),
      creator_pid_(other.creator_pid_) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  if (this != &other) {
    unlink();
    file_ = std::move(other.file_);
    bytes_ = std::exchange(other.bytes_, 0);
    mapping_ = std::move(other.mapping_);
    own_ = std::move(other.own_);
    own_offset_ = other.own_offset_;
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
