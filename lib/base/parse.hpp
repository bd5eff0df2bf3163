// Strict parsing of numbers, sizes, durations and lists: the whole text counts, or it is an error.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace allrail::base {

/// A whole decimal number.
std::optional<std::uint64_t> parse_number(std::string_view text);
/// A number of bytes with an optional K, M or G (powers of 1024).
std::optional<std::uint64_t> parse_bytes(std::string_view text);
/// A duration: `500ms`, `1.5s`, `2m`, or a bare number of seconds.
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text);
/// The parts between separators, empty ones included; an empty text has no parts.
std::vector<std::string> split(std::string_view text, char separator);
/// Pairs of names such as `eth0=eth1,0=1`; empty for anything else: a name that is missing, or a
/// pair that stands there twice, either way round.
std::optional<std::vector<std::pair<std::string, std::string>>> parse_pairs(std::string_view text);
/// 65536 as "64K", 1000 as "1000".
std::string format_bytes(std::uint64_t bytes);

}  // namespace allrail::base
