#include "shm/huge_pages.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <sstream>
#include <system_error>

#include <fmt/core.h>
#include <numa.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "lib/base/parse.hpp"
#include "shm/layout.hpp"
#include "shm/shared_file.hpp"

namespace allrail::shm {
namespace {

// Of the kernel; the C library's headers may be older.
constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE
constexpr int kCollapse = 25;       // MADV_COLLAPSE
constexpr const char* kSystemFolder = "/sys/kernel/mm/transparent_hugepage/";
constexpr SharedFileKind kTrialKind{"trial of huge pages", "remove what is not needed there"};

/// Empty where there is no such file.
std::string text_of(const std::string& path) {
  std::ifstream stream(path);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

/// The first word of `text`, which loses it and the blanks around it.
std::string_view take_word(std::string_view& text) noexcept {
  constexpr std::string_view kBlanks = " \t\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

/// Calls `see` with every line of the text.
template <class See>
void for_lines(std::string_view text, const See& see) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    see(line);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
  }
}

/// False, and nothing is changed, where the line does not begin as a mapping in smaps does:
/// "7f12-7f34 rw-s ...".
bool read_range(std::string_view line, std::uint64_t& begin, std::uint64_t& end) noexcept {
  const char* last = line.data() + line.size();
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  // Names such as "Anonymous" begin with a hexadecimal digit, too.
  const auto first = std::from_chars(line.data(), last, low, 16);
  if (first.ec != std::errc() || first.ptr == last || *first.ptr != '-') return false;
  const auto second = std::from_chars(first.ptr + 1, last, high, 16);
  if (second.ec != std::errc() || second.ptr == last || *second.ptr != ' ') return false;
  begin = low;
  end = high;
  return true;
}

/// Has the kernel make huge pages of small ones that are there.
void join_pages(const base::Mapping& mapping) noexcept {
  // A page that somebody holds for a moment, as reclaim does, is EAGAIN; those joined stay joined.
  constexpr int kTries = 5;
  for (int tried = 0; tried < kTries; ++tried) {
    if (::madvise(mapping.data(), mapping.size(), kCollapse) == 0 || errno != EAGAIN) return;
  }
}

}  // namespace

HugePages huge_pages_of(std::string_view word) noexcept {
  return word == "on" ? HugePages::On : word == "off" ? HugePages::Off : HugePages::Auto;
}

std::string_view chosen_word(std::string_view text) noexcept {
  const auto open = text.find('[');
  const auto close = text.find(']', open == std::string_view::npos ? 0 : open);
  if (open == std::string_view::npos || close == std::string_view::npos) return take_word(text);
  return text.substr(open + 1, close - open - 1);
}

std::string mount_policy(std::string_view mountinfo, unsigned major, unsigned minor) {
  const std::string device = fmt::format("{}:{}", major, minor);
  std::string policy = "never";
  for_lines(mountinfo, [&](std::string_view line) {
    std::string_view rest = line;
    take_word(rest);  // the mount's number
    take_word(rest);  // its parent's
    if (take_word(rest) != device) return;
    // Behind " - ": the kind, the source, and the options of the file system.
    const auto behind = rest.find(" - ");
    if (behind == std::string_view::npos) return;
    rest.remove_prefix(behind + 3);
    take_word(rest);
    take_word(rest);
    for (const std::string& option : base::split(take_word(rest), ',')) {
      if (option.starts_with("huge=")) policy = option.substr(5);
    }
  });
  return policy;
}

std::uint64_t huge_bytes_in(std::string_view smaps, std::uint64_t begin, std::uint64_t end) {
  constexpr std::string_view kName = "ShmemPmdMapped:";
  std::uint64_t from = 0;
  std::uint64_t to = 0;
  std::uint64_t bytes = 0;
  for_lines(smaps, [&](std::string_view line) {
    if (read_range(line, from, to) || from >= end || to <= begin || !line.starts_with(kName)) {
      return;
    }
    std::string_view rest = line.substr(kName.size());
    bytes += base::parse_number(take_word(rest)).value_or(0) * 1024;
  });
  return bytes;
}

std::uint64_t huge_bytes_of(std::span<const std::byte> range) {
  const auto begin = reinterpret_cast<std::uint64_t>(range.data());
  return huge_bytes_in(text_of("/proc/self/smaps"), begin, begin + range.size());
}

HugePagePolicy read_huge_page_policy(int fd) {
  HugePagePolicy policy;
  const std::string bytes = text_of(std::string(kSystemFolder) + "hpage_pmd_size");
  policy.page_bytes = base::parse_number(chosen_word(bytes)).value_or(0);
  const std::string kernel = text_of(std::string(kSystemFolder) + "shmem_enabled");
  policy.kernel = std::string(chosen_word(kernel));
  struct stat status {};
  if (::fstat(fd, &status) == 0) {
    policy.mount = mount_policy(text_of("/proc/self/mountinfo"), ::gnu_dev_major(status.st_dev),
                                ::gnu_dev_minor(status.st_dev));
  }
  policy.several_memories = ::numa_available() >= 0 && ::numa_num_configured_nodes() > 1;
  return policy;
}

HugePagePlan plan_huge_pages(HugePages wish, const HugePagePolicy& policy, std::uint64_t bytes) {
  if (wish == HugePages::Off || policy.page_bytes <= kPageBytes || bytes < policy.page_bytes ||
      policy.kernel == "deny") {
    return {};
  }
  const bool given = policy.mount != "never" || policy.kernel == "force";
  if (!given && wish == HugePages::Auto) return {};
  HugePagePlan plan;
  plan.alignment_bytes = policy.page_bytes;
  plan.advise = true;
  plan.write_through = policy.mount == "advise";
  // The kernel joins pages in the memory that has most of them, so pages that were spread over
  // several memories would all end up in one.
  plan.collapse = wish == HugePages::On && !policy.several_memories;
  return plan;
}

std::shared_ptr<base::Mapping> map_with_huge_pages(int fd, std::uint64_t bytes,
                                                   const HugePagePlan& plan,
                                                   const SharedFileKind& kind) {
  auto mapping = map_shared(fd, bytes, kind, plan.alignment_bytes);
  if (plan.advise) ::madvise(mapping->data(), mapping->size(), MADV_HUGEPAGE);
  return mapping;
}

void reserve_with_huge_pages(int fd, const base::Mapping& mapping, const HugePagePlan& plan,
                             const SharedFileKind& kind) {
  check_room(fd, mapping.size(), kind);
  // Where the file system is full after all, this ends early, and what follows says so.
  if (plan.write_through) ::madvise(mapping.data(), mapping.size(), kPopulateWrite);
  allocate_pages(fd, 0, mapping.size(), kind);
  if (plan.collapse) join_pages(mapping);
}

HugePageTrial try_huge_pages(HugePages wish) {
  constexpr std::uint64_t kPages = 2;
  const base::UniqueFd file = make_shared_file(0, kTrialKind);
  HugePageTrial trial;
  trial.policy = read_huge_page_policy(file.get());
  trial.bytes = kPages * trial.policy.page_bytes;
  if (trial.bytes == 0) return trial;
  resize_shared_file(file.get(), trial.bytes, kTrialKind);
  const HugePagePlan plan = plan_huge_pages(wish, trial.policy, trial.bytes);
  const auto mapping = map_with_huge_pages(file.get(), trial.bytes, plan, kTrialKind);
  reserve_with_huge_pages(file.get(), *mapping, plan, kTrialKind);
  for (std::uint64_t page = 0; page < kPages; ++page) {
    mapping->data()[page * trial.policy.page_bytes] = std::byte{1};
  }
  trial.huge_bytes = huge_bytes_of(mapping->bytes());
  return trial;
}

}  // namespace allrail::shm
