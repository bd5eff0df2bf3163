// The windows of a TCP rail: memory that peers name by a number and a random key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sodium.h>

#include "lib/base/error.hpp"
#include "transport/tcp/frame.hpp"

namespace allrail::transport {

class WindowTable {
 public:
  static constexpr std::size_t kMaxWindows = 1 << 16;

  void set_primary(std::span<std::byte> memory) { primary_ = memory; }

  RemoteKey add(std::span<std::byte> memory) {
    std::size_t number = 0;
    while (number < windows_.size() && windows_[number].key != 0) ++number;
    if (number == kMaxWindows) {
      base::fail(Code::ResourceLimit, "a TCP rail has at most {} windows", kMaxWindows);
    }
    if (number == windows_.size()) windows_.emplace_back();
    // A key of 0 marks a free place, and a new key for every use keeps stale writers out.
    std::uint64_t key = 0;
    while (key == 0) randombytes_buf(&key, sizeof(key));
    windows_[number] = {memory, key};
    return {number, key};
  }

  /// Returns the memory that was taken out; empty if the key is not one of ours.
  std::span<std::byte> remove(const RemoteKey& key) {
    if (key.key == 0 || key.address >= windows_.size()) return {};
    Window& window = windows_[key.address];
    if (window.key != key.key) return {};
    const std::span<std::byte> memory = window.memory;
    window = {};
    return memory;
  }

  /// Where the chunk goes, or why it may not.
  FrameSink::Target find(const FrameHeader& header) const {
    std::span<std::byte> memory = primary_;
    if (header.primary == 0) {
      if (header.window >= windows_.size() || header.key == 0 ||
          windows_[header.window].key != header.key) {
        return {"wrote into a window that is not registered"};
      }
      memory = windows_[header.window].memory;
    }
    if (header.offset > memory.size() || header.bytes > memory.size() - header.offset) {
      return {"wrote beyond the end of a window"};
    }
    return {nullptr, memory.data() + header.offset};
  }

 private:
  struct Window {
    std::span<std::byte> memory;
    std::uint64_t key = 0;
  };
  std::span<std::byte> primary_;
  std::vector<Window> windows_;
};

}  // namespace allrail::transport
