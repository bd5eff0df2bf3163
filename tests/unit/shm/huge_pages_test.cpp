// Huge pages of the node segment: what is decided, and what the kernel makes of it on file systems
// of every kind.
#include "shm/huge_pages.hpp"

#include <cstdio>
#include <functional>
#include <random>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "include/allrail/error.hpp"
#include "shm/segment.hpp"

namespace allrail::shm {
namespace {

constexpr std::uint64_t kHugeBytes = 2ULL << 20;
constexpr std::uint64_t kPlenty = 64ULL << 20;

HugePagePolicy policy_of(const std::string& mount, const std::string& kernel = "never",
                         bool several_memories = false) {
  return {kHugeBytes, mount, kernel, several_memories};
}

TEST(HugePageText, TheChosenWordStandsInBrackets) {
  EXPECT_EQ(chosen_word("always within_size advise [never] deny force\n"), "never");
  EXPECT_EQ(chosen_word("always [madvise] never"), "madvise");
  EXPECT_EQ(chosen_word("2097152\n"), "2097152");
  EXPECT_EQ(chosen_word(""), "");
}

TEST(HugePageText, TheMountIsFoundByItsDevice) {
  const std::string text =
      "24 1 254:0 / / rw,relatime - ext4 /dev/root rw,huge=always\n"
      "25 24 0:23 / /dev/shm rw,nosuid - tmpfs tmpfs rw,size=1024k\n"
      "30 25 0:27 / /mnt/a\\040b rw shared:7 - tmpfs none rw,size=64k,huge=advise,inode64\n"
      "31 25 0:2 / /short rw - tmpfs none rw,huge=within_size\n";
  EXPECT_EQ(mount_policy(text, 0, 27), "advise");
  EXPECT_EQ(mount_policy(text, 0, 23), "never");
  EXPECT_EQ(mount_policy(text, 0, 2), "within_size");
  EXPECT_EQ(mount_policy(text, 9, 9), "never");
  EXPECT_EQ(mount_policy("30 25 0:27\nnonsense", 0, 27), "never");
  EXPECT_EQ(mount_policy("", 0, 0), "never");
}

TEST(HugePageText, OnlyMappingsOfTheRangeAreCounted) {
  const std::string text =
      "1000-3000 rw-s 00000000 00:17 5 /dev/shm/x\n"
      "ShmemPmdMapped:       4 kB\n"
      "3000-5000 rw-s 00002000 00:17 5 /dev/shm/x\n"
      "Rss:                900 kB\n"
      "ShmemPmdMapped:      16 kB\n"
      "VmFlags: rd wr\n"
      "5000-6000 rw-p 00000000 00:00 0\n"
      "Anonymous:            0 kB\n"
      "ShmemPmdMapped:      64 kB\n";
  EXPECT_EQ(huge_bytes_in(text, 0x1000, 0x5000), 20U << 10);
  EXPECT_EQ(huge_bytes_in(text, 0x3000, 0x3001), 16U << 10);
  EXPECT_EQ(huge_bytes_in(text, 0x6000, 0x7000), 0U);
  EXPECT_EQ(huge_bytes_in("", 0, ~0ULL), 0U);
}

TEST(HugePagePlan, OffAsksForNothingAnywhere) {
  for (const char* mount : {"never", "advise", "within_size", "always"}) {
    const HugePagePlan plan = plan_huge_pages(HugePages::Off, policy_of(mount, "force"), kPlenty);
    EXPECT_FALSE(plan.advise || plan.write_through || plan.collapse) << mount;
    EXPECT_EQ(plan.alignment_bytes, 0U);
  }
}

TEST(HugePagePlan, AutoAsksWhereTheMountGives) {
  EXPECT_FALSE(plan_huge_pages(HugePages::Auto, policy_of("never"), kPlenty).advise);
  // shmem_enabled is about memory without a file, but for two of its words.
  EXPECT_FALSE(plan_huge_pages(HugePages::Auto, policy_of("never", "always"), kPlenty).advise);
  EXPECT_TRUE(plan_huge_pages(HugePages::Auto, policy_of("never", "force"), kPlenty).advise);
  for (const char* mount : {"advise", "within_size", "always"}) {
    const HugePagePlan plan = plan_huge_pages(HugePages::Auto, policy_of(mount), kPlenty);
    EXPECT_TRUE(plan.advise) << mount;
    EXPECT_EQ(plan.alignment_bytes, kHugeBytes);
    EXPECT_FALSE(plan.collapse);
    EXPECT_EQ(plan.write_through, std::string(mount) == "advise")
        << "posix_fallocate() heeds a mount, but no advice";
    EXPECT_FALSE(plan_huge_pages(HugePages::Auto, policy_of(mount, "deny"), kPlenty).advise);
  }
}

TEST(HugePagePlan, OnJoinsPagesUnlessThatWouldMoveThemAll) {
  EXPECT_TRUE(plan_huge_pages(HugePages::On, policy_of("never"), kPlenty).collapse);
  EXPECT_FALSE(plan_huge_pages(HugePages::On, policy_of("never", "deny"), kPlenty).collapse);
  const HugePagePlan spread =
      plan_huge_pages(HugePages::On, policy_of("advise", "never", true), kPlenty);
  EXPECT_TRUE(spread.advise && spread.write_through);
  EXPECT_FALSE(spread.collapse);
}

TEST(HugePagePlan, LessThanAHugePageAsksForNone) {
  EXPECT_FALSE(plan_huge_pages(HugePages::On, policy_of("always"), kHugeBytes - 1).advise);
  EXPECT_TRUE(plan_huge_pages(HugePages::On, policy_of("always"), kHugeBytes).advise);
  EXPECT_FALSE(plan_huge_pages(HugePages::On, {0, "always", "force", false}, kPlenty).advise);
}

TEST(HugePagePlan, TheWordsOfTheSetting) {
  EXPECT_EQ(huge_pages_of("on"), HugePages::On);
  EXPECT_EQ(huge_pages_of("off"), HugePages::Off);
  EXPECT_EQ(huge_pages_of("auto"), HugePages::Auto);
}

SegmentLayout layout_with(std::uint64_t large_slot_bytes) {
  SegmentLayout request;
  request.ranks = 2;
  request.small_slot_bytes = 4096;
  request.large_slot_bytes = large_slot_bytes;
  return lay_out(request);
}

constexpr int kPassed = 0;
constexpr int kSkipped = 77;

/// What `body` returns in a child that sees a /dev/shm of its own with these options.
int in_mount(const std::string& options, const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("pages", "/dev/shm", "tmpfs", 0, options.c_str()) != 0) {
      ::_exit(kSkipped);
    }
    int result = 3;
    try {
      result = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(result);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "died by signal " << WTERMSIG(status);
  return WEXITSTATUS(status);
}

/// Whether this kernel gives one huge page there today, asked for without our code: advice, writing
/// and joining, whatever of it helps.
bool kernel_gives_a_huge_page() {
  const int fd = ::open("/dev/shm", O_TMPFILE | O_RDWR, 0600);
  if (fd < 0 || ::ftruncate(fd, kHugeBytes) != 0) return false;
  void* held = ::mmap(nullptr, 2 * kHugeBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto at = (reinterpret_cast<std::uint64_t>(held) + kHugeBytes - 1) / kHugeBytes;
  auto* page = reinterpret_cast<std::byte*>(at * kHugeBytes);
  ::mmap(page, kHugeBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  ::madvise(page, kHugeBytes, MADV_HUGEPAGE);
  for (std::uint64_t i = 0; i < kHugeBytes; i += 4096) page[i] = std::byte{1};
  constexpr int kCollapse = 25;
  ::madvise(page, kHugeBytes, kCollapse);
  const bool given = huge_bytes_of({page, kHugeBytes}) == kHugeBytes;
  ::munmap(held, 2 * kHugeBytes);
  ::close(fd);
  return given;
}

/// Makes a segment and attaches to it, as two ranks do, writes to every page and reads that at the
/// other side. Whole huge pages in it are to be mapped as such by both, or none at all.
int make_and_compare(HugePages wish, bool huge_expected, std::uint64_t large_slot_bytes) {
  const SegmentLayout layout = layout_with(large_slot_bytes);
  if (huge_expected && !kernel_gives_a_huge_page()) return kSkipped;
  const std::string name = NodeSegment::make_name(std::random_device{}());
  NodeSegment creator = NodeSegment::create(name, layout, {}, wish);
  const NodeSegment other = NodeSegment::attach(name, layout, wish);
  const std::uint64_t slots_begin = layout.large_slots_offset;
  for (std::uint64_t at = slots_begin; at < layout.total_bytes; at += kPageBytes) {
    creator.bytes()[at] = static_cast<std::byte>(at >> 12);
  }
  for (std::uint64_t at = slots_begin; at < layout.total_bytes; at += kPageBytes) {
    if (other.bytes()[at] != static_cast<std::byte>(at >> 12)) return 1;
  }
  struct stat status {};
  if (::stat(("/dev/shm" + name).c_str(), &status) != 0) return 2;
  const auto taken_bytes = static_cast<std::uint64_t>(status.st_blocks) * 512;
  const std::uint64_t whole_pages = layout.total_bytes / kHugeBytes;
  if (taken_bytes < layout.total_bytes || taken_bytes > (whole_pages + 1) * kHugeBytes) return 4;
  const std::uint64_t expected = huge_expected ? whole_pages * kHugeBytes : 0;
  std::uint64_t mapped = huge_bytes_of(creator.bytes());
  if (mapped < expected || (!huge_expected && mapped != 0)) return 5;
  mapped = huge_bytes_of(other.bytes());
  if (mapped < expected || (!huge_expected && mapped != 0)) return 6;
  return kPassed;
}

struct MountCase {
  const char* name;
  const char* options;
  HugePages wish;
  bool huge;
};

class HugePageMount : public testing::TestWithParam<MountCase> {};

TEST_P(HugePageMount, GivesWhatIsAskedForAndNoMoreMemory) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can mount a /dev/shm of its own";
  const MountCase& one = GetParam();
  int result = kSkipped;
  // A kernel that is busy may give none this time, but not time after time.
  for (int tried = 0; tried < 5; ++tried) {
    result =
        in_mount(one.options, [&] { return make_and_compare(one.wish, one.huge, kHugeBytes); });
    if (!one.huge || (result != 5 && result != 6)) break;
  }
  if (result == kSkipped) GTEST_SKIP() << "no such file system, or no huge page is free";
  EXPECT_EQ(result, kPassed)
      << "1: wrong bytes, 2: no file, 3: an error, 4: another amount of memory than the "
         "segment has, 5: the creator's mapping, 6: the other one's";
}

INSTANTIATE_TEST_SUITE_P(
    All, HugePageMount,
    testing::Values(MountCase{"advise_auto", "size=64m,huge=advise", HugePages::Auto, true},
                    MountCase{"advise_off", "size=64m,huge=advise", HugePages::Off, false},
                    MountCase{"within_auto", "size=64m,huge=within_size", HugePages::Auto, true},
                    MountCase{"always_auto", "size=64m,huge=always", HugePages::Auto, true},
                    MountCase{"never_auto", "size=64m,huge=never", HugePages::Auto, false},
                    MountCase{"never_on", "size=64m,huge=never", HugePages::On, true},
                    MountCase{"never_off", "size=64m,huge=never", HugePages::Off, false}),
    [](const testing::TestParamInfo<MountCase>& made) { return made.param.name; });

TEST(HugePageRoom, AFileSystemThatIsFullIsAnErrorWithAdvice) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can mount a /dev/shm of its own";
  for (const char* options : {"size=6m,huge=advise", "size=6m,huge=always", "size=6m,huge=never"}) {
    const int result = in_mount(options, [] {
      try {
        NodeSegment::create(NodeSegment::make_name(1), layout_with(kHugeBytes), {}, HugePages::On);
      } catch (const Error& error) {
        const std::string text = error.what();
        return text.find("ALLRAIL_NODE_MEMORY") != std::string::npos ? kPassed : 1;
      }
      return 2;
    });
    if (result == kSkipped) GTEST_SKIP() << "no such file system";
    EXPECT_EQ(result, kPassed) << options;
  }
}

TEST(HugePageRoom, WhatFitsInSmallPagesOnlyIsMadeOfThem) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can mount a /dev/shm of its own";
  // Five huge pages would be 10 MiB, and the segment has 8 and a little.
  for (const char* options : {"size=9m,huge=advise", "size=9m,huge=always", "size=9m,huge=never"}) {
    const int result = in_mount(options, [] {
      const NodeSegment segment = NodeSegment::create(NodeSegment::make_name(1),
                                                      layout_with(kHugeBytes), {}, HugePages::On);
      for (std::uint64_t at = segment.layout().large_slots_offset; at < segment.bytes().size();
           at += kPageBytes) {
        segment.bytes()[at] = std::byte{1};
      }
      return kPassed;
    });
    if (result == kSkipped) GTEST_SKIP() << "no such file system";
    EXPECT_EQ(result, kPassed) << options;
  }
}

TEST(HugePageTrialTest, SaysWhatIsToBeHadHere) {
  const HugePageTrial off = try_huge_pages(HugePages::Off);
  EXPECT_EQ(off.bytes, 2 * off.policy.page_bytes);
  if (off.policy.mount == "never" && off.policy.kernel != "force") {
    EXPECT_EQ(off.huge_bytes, 0U);
  }
  const HugePageTrial on = try_huge_pages(HugePages::On);
  EXPECT_LE(on.huge_bytes, on.bytes);
  EXPECT_EQ(on.policy.mount, off.policy.mount);
}

}  // namespace
}  // namespace allrail::shm
