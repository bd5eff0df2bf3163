// Sizes of the receive buffer that all links of a TCP rail share.
#pragma once

#include <cstddef>

#include "transport/tcp/frame.hpp"

namespace allrail::transport {

/// Bytes that one system call reads into the buffer while chunks are small: many frames at once.
inline constexpr std::size_t kReadBytes = 64ULL * 1024;
/// The same while chunks are large: little more than the next header, so that payload goes
/// straight into its window.
inline constexpr std::size_t kReadBytesWhenLarge = 4ULL * 1024;
inline constexpr std::size_t kLargeChunkBytes = 32ULL * 1024;
/// The start of an incomplete frame is put in front of what is read.
inline constexpr std::size_t kBufferBytes = kMaxRestBytes + kReadBytes;

}  // namespace allrail::transport
