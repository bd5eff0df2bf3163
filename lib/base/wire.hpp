// Bytes that travel between processes: little-endian numbers, length-checked texts and blobs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace allrail::base {

class WireWriter {
 public:
  template <class Number>
  requires std::is_arithmetic_v<Number>
  void number(Number value) {
    // Not insert(): g++ 12 warns of bounds there that are kept.
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof value);
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  void blob(std::span<const std::byte> value) {
    number(static_cast<std::uint32_t>(value.size()));
    bytes_.insert(bytes_.end(), value.begin(), value.end());
  }
  void text(std::string_view value) { blob(std::as_bytes(std::span(value.data(), value.size()))); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads what WireWriter wrote. After anything that does not fit, ok() is false and every further
/// value is zero or empty: the caller checks once at the end. Input is untrusted.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class Number>
  requires std::is_arithmetic_v<Number> Number number() {
    Number value{};
    if (const auto raw = take(sizeof value); raw.size() == sizeof value) {
      std::memcpy(&value, raw.data(), sizeof value);
    }
    return value;
  }
  std::vector<std::byte> blob() {
    const auto raw = take(number<std::uint32_t>());
    return {raw.begin(), raw.end()};
  }
  std::string text() {
    const auto raw = take(number<std::uint32_t>());
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && bytes_.empty(); }

 private:
  std::span<const std::byte> take(std::size_t count) {
    if (!ok_ || count > bytes_.size()) {
      ok_ = false;
      return {};
    }
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

}  // namespace allrail::base
