#include "transport/verbs/port_facts.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <system_error>

#include "lib/base/parse.hpp"

namespace allrail::transport {
namespace {

struct Coded {
  int code;
  std::uint32_t value;
};

// Mbit/s of one lane, by the code of IBTA PortInfo.LinkSpeedActive and LinkSpeedExtActive. What
// ports are sold as, as in the kernel's table; SDR to QDR lose a fifth of it to line coding.
constexpr Coded kLaneRates[] = {
    {1, 2'500},      // SDR
    {2, 5'000},      // DDR
    {4, 10'000},     // QDR
    {8, 10'000},     // FDR10
    {16, 14'000},    // FDR
    {32, 25'000},    // EDR
    {64, 50'000},    // HDR
    {128, 100'000},  // NDR; XDR has no code in eight bits
};
constexpr Coded kLanes[] = {{1, 1}, {2, 4}, {4, 8}, {8, 12}, {16, 2}};

template <std::size_t Size>
std::uint32_t decode(const Coded (&table)[Size], int code) {
  const auto* row =
      std::find_if(table, table + Size, [&](const Coded& one) { return one.code == code; });
  return row == table + Size ? 0 : row->value;
}

/// A decimal number with at most one fraction at the start of `text`, in thousandths.
std::optional<std::uint64_t> leading_thousandths(std::string_view text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string_view number = text.substr(0, end);
  const std::size_t point = std::min(number.find('.'), number.size());
  std::string digits(number.substr(0, point));
  std::string fraction(point == number.size() ? "" : number.substr(point + 1));
  fraction.resize(3, '0');
  if (digits.size() > 6) return std::nullopt;
  return base::parse_number(digits + fraction);
}

/// What is left of a transfer rate after line coding.
std::uint64_t after_line_coding(std::uint64_t mbit) {
  if (mbit <= 5'000) return mbit * 8 / 10;
  if (mbit <= 32'000) return mbit * 128 / 130;
  return mbit * 242 / 256;  // flits of generation 6
}

}  // namespace

std::uint32_t rate_from_codes(int speed_code, int width_code) {
  return decode(kLaneRates, speed_code) * decode(kLanes, width_code);
}

std::uint32_t rate_from_text(std::string_view text) {
  if (text.find(" Gb/sec") == std::string_view::npos) return 0;
  return static_cast<std::uint32_t>(leading_thousandths(text).value_or(0));
}

std::uint32_t pcie_rate(std::string_view speed, std::string_view width) {
  if (speed.find(" GT/s") == std::string_view::npos) return 0;
  const std::uint64_t lane_mbit = after_line_coding(leading_thousandths(speed).value_or(0));
  const auto lanes = base::parse_number(width);
  // 255 is what the kernel prints where it does not know.
  if (!lanes || *lanes > 32) return 0;
  return static_cast<std::uint32_t>(lane_mbit * *lanes);
}

bool is_pci_address(std::string_view text) {
  constexpr std::string_view kPattern = "xxxx:xx:xx.x";
  // A domain may have more than four digits (virtual bridges).
  if (text.size() < kPattern.size()) return false;
  const std::size_t longer = text.size() - kPattern.size();
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char expected = i < longer ? 'x' : kPattern[i - longer];
    const bool fits = expected == 'x' ? std::isxdigit(static_cast<unsigned char>(text[i])) != 0
                                      : text[i] == expected;
    if (!fits) return false;
  }
  return true;
}

std::string read_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

std::vector<std::string> list_folder(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

DevicePlace read_device_place(const std::filesystem::path& device_link) {
  DevicePlace place;
  std::error_code error;
  std::filesystem::path folder = std::filesystem::canonical(device_link, error);
  if (error) return place;
  // Some drivers put a device of their own between the RDMA device and its PCI device.
  while (!is_pci_address(folder.filename().string())) {
    if (folder == folder.parent_path()) return place;
    folder = folder.parent_path();
  }
  place.pci_address = folder.filename().string();
  // The kernel prints -1 where it does not know.
  const auto node = base::parse_number(read_line(folder / "numa_node"));
  if (node) place.numa_node = static_cast<int>(*node);
  // A virtual function has no link of its own.
  const auto owner = std::filesystem::canonical(folder / "physfn", error);
  if (!error) {
    place.physical_function = owner.filename().string();
    folder = owner;
  }
  place.pcie_mbit =
      pcie_rate(read_line(folder / "current_link_speed"), read_line(folder / "current_link_width"));
  return place;
}

}  // namespace allrail::transport
