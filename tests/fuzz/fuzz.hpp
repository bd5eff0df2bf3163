// What the fuzzers share. Each is one file that defines seeds() and fuzz_one(); fuzz_main.cpp joins
// them to libFuzzer.
//
//   fuzz-card --write-seeds DIR      writes the seeds, one file each, and ends
//   fuzz-card [-max_total_time=10] DIR
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace allrail::fuzz {

using Bytes = std::vector<std::byte>;

/// Inputs that are valid, made by the encoders of the product, so that they change with the format.
std::vector<Bytes> seeds();
/// Parses one input and requires of the result what must hold for every input.
void fuzz_one(std::span<const std::byte> input);

/// Ends the process, which libFuzzer reports with the input, unless it holds.
void require(bool holds, const char* sentence);

inline Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}
inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline bool equal(std::span<const std::byte> one, std::span<const std::byte> other) {
  return one.size() == other.size() &&
         (one.empty() || std::memcmp(one.data(), other.data(), one.size()) == 0);
}

/// Takes numbers from the front of an input; zeros once it is used up.
class Choices {
 public:
  explicit Choices(std::span<const std::byte> input) : input_(input) {}
  template <class Number>
  requires std::is_integral_v<Number> Number number() {
    Number value = 0;
    const std::size_t count = std::min(sizeof value, input_.size());
    if (count != 0) std::memcpy(&value, input_.data(), count);
    input_ = input_.subspan(count);
    return value;
  }
  /// Below `limit`, which is at most 256.
  std::size_t below(std::size_t limit) { return number<std::uint8_t>() % limit; }
  /// At most so many bytes.
  std::span<const std::byte> take(std::size_t most) {
    const auto taken = input_.first(std::min(most, input_.size()));
    input_ = input_.subspan(taken.size());
    return taken;
  }
  std::span<const std::byte> rest() const { return input_; }
  bool empty() const { return input_.empty(); }

 private:
  std::span<const std::byte> input_;
};

}  // namespace allrail::fuzz
