#include "lib/base/parse.hpp"

#include <charconv>
#include <cmath>

#include <fmt/core.h>

namespace allrail::base {

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return {};
  return value;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  if (text.empty()) return {};
  int shift = 0;
  switch (text.back()) {
    case 'K':
    case 'k':
      shift = 10;
      break;
    case 'M':
    case 'm':
      shift = 20;
      break;
    case 'G':
    case 'g':
      shift = 30;
      break;
    default:
      break;
  }
  if (shift != 0) text.remove_suffix(1);
  const auto number = parse_number(text);
  if (!number || (*number << shift) >> shift != *number) return {};
  return *number << shift;
}

std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  double scale_ms = 1000;
  if (text.ends_with("ms")) {
    scale_ms = 1;
    text.remove_suffix(2);
  } else if (text.ends_with("s")) {
    text.remove_suffix(1);
  } else if (text.ends_with("m")) {
    scale_ms = 60'000;
    text.remove_suffix(1);
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return {};
  if (!(value >= 0) || value * scale_ms > 1e12) return {};
  return std::chrono::milliseconds(std::llround(value * scale_ms));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const auto at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
    if (text.empty()) parts.emplace_back();
  }
  return parts;
}

std::optional<std::vector<std::pair<std::string, std::string>>> parse_pairs(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& item : split(text, ',')) {
    const auto names = split(item, '=');
    if (names.size() != 2 || names[0].empty() || names[1].empty()) return std::nullopt;
    if (item.find_first_of(" \t") != std::string::npos) return std::nullopt;
    const auto pair = std::pair(names[0], names[1]);
    const auto turned = std::pair(names[1], names[0]);
    for (const auto& other : pairs) {
      if (other == pair || other == turned) return std::nullopt;
    }
    pairs.push_back(pair);
  }
  return pairs;
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::uint64_t kKibi = 1024;
  if (bytes != 0 && bytes % (kKibi * kKibi * kKibi) == 0) {
    return fmt::format("{}G", bytes / (kKibi * kKibi * kKibi));
  }
  if (bytes != 0 && bytes % (kKibi * kKibi) == 0)
    return fmt::format("{}M", bytes / (kKibi * kKibi));
  if (bytes != 0 && bytes % kKibi == 0) return fmt::format("{}K", bytes / kKibi);
  return fmt::format("{}", bytes);
}

}  // namespace allrail::base
