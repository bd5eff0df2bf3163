// Owners of operating-system resources: file descriptors and mappings. Move-only.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace allrail::base {

/// Owns a file descriptor and closes it. Held as a member it also closes when a constructor throws.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) noexcept : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~UniqueFd() { reset(); }

  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept;
  int release() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

/// Owns a memory mapping (mmap) and unmaps it.
class Mapping {
 public:
  Mapping() = default;
  Mapping(void* address, std::size_t bytes) noexcept
      : address_(static_cast<std::byte*>(address)), bytes_(bytes) {}
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Mapping& operator=(Mapping&& other) noexcept {
    if (this != &other) {
      reset();
      address_ = std::exchange(other.address_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
    }
    return *this;
  }
  ~Mapping() { reset(); }

  std::byte* data() const noexcept { return address_; }
  std::size_t size() const noexcept { return bytes_; }
  std::span<std::byte> bytes() const noexcept { return {address_, bytes_}; }
  void reset() noexcept;

 private:
  std::byte* address_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace allrail::base
