// Huge pages for the node segment: what the system allows, what is asked for, and what came of it.
//
// A tmpfs gives huge pages by its mount option huge=. posix_fallocate(3) takes nobody's advice: on
// a mount with huge=advise it makes small pages even where an advised mapping waits for them, so
// there the pages are made by writing through the mapping. Where the mount gives none,
// MADV_COLLAPSE (Linux 6.1) still joins the pages that are there, as it is meant to; that costs a
// copy of them and is done only for who says so. Every refusal is quiet: these are matters of
// speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lib/base/handle.hpp"

namespace allrail::shm {

struct SharedFileKind;  // shared_file.hpp

/// What is wished. Auto: where the file system gives them. On: also where it does not, if the
/// kernel joins pages on demand.
enum class HugePages { Off, Auto, On };
/// Of the words `off`, `auto` and `on`.
HugePages huge_pages_of(std::string_view word) noexcept;

/// What the system says of huge pages in a file of shared memory.
struct HugePagePolicy {
  std::uint64_t page_bytes = 0;   // of a huge page; 0: the kernel has none
  std::string mount = "never";    // the mount option huge= of its file system
  std::string kernel = "never";   // shmem_enabled; only `deny` and `force` reach such a file
  bool several_memories = false;  // NUMA nodes
};
HugePagePolicy read_huge_page_policy(int fd);

/// What will be done about a segment.
struct HugePagePlan {
  std::uint64_t alignment_bytes = 0;  // of the mapping; 0: any
  bool advise = false;                // MADV_HUGEPAGE
  bool write_through = false;         // make the pages by writing to the mapping
  bool collapse = false;              // join small pages that are there
};
/// Pure. A segment that is smaller than a huge page asks for none.
HugePagePlan plan_huge_pages(HugePages wish, const HugePagePolicy& policy, std::uint64_t bytes);

/// Maps the file as planned, and asks. Throws Error{ResourceLimit}.
std::shared_ptr<base::Mapping> map_with_huge_pages(int fd, std::uint64_t bytes,
                                                   const HugePagePlan& plan,
                                                   const SharedFileKind& kind);
/// Makes all pages of a file that is mapped whole, as reserve_pages() does, huge ones where that is
/// planned and possible. Throws Error{ResourceLimit}.
void reserve_with_huge_pages(int fd, const base::Mapping& mapping, const HugePagePlan& plan,
                             const SharedFileKind& kind);

/// How much of this range is mapped by huge pages in this process: /proc/self/smaps.
std::uint64_t huge_bytes_of(std::span<const std::byte> range);

/// The word in brackets of a text such as "always [madvise] never", or all of it. Pure.
std::string_view chosen_word(std::string_view text) noexcept;
/// The mount option huge= of the file system that has this device, out of the text of
/// /proc/self/mountinfo. Pure.
std::string mount_policy(std::string_view mountinfo, unsigned major, unsigned minor);
/// The sum over all mappings of that range, out of the text of /proc/self/smaps. Pure.
std::uint64_t huge_bytes_in(std::string_view smaps, std::uint64_t begin, std::uint64_t end);

/// Two huge pages, made as those of a segment are, touched, counted and given back: whether they
/// are to be had in /dev/shm.
struct HugePageTrial {
  HugePagePolicy policy;
  std::uint64_t bytes = 0;
  std::uint64_t huge_bytes = 0;
};
/// Throws Error{ResourceLimit} where /dev/shm has no room for it.
HugePageTrial try_huge_pages(HugePages wish);

}  // namespace allrail::shm
