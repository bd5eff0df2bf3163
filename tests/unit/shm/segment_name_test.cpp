// The name in /dev/shm: who may open it, what is refused, and that nothing stays behind.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "include/allrail/error.hpp"
#include "lib/base/clock.hpp"
#include "shm/header.hpp"
#include "shm/leftovers.hpp"
#include "shm/segment.hpp"

namespace allrail::shm {
namespace {

SegmentLayout layout_of(std::uint64_t large_slot_bytes = 64 << 10) {
  SegmentLayout request;
  request.ranks = 2;
  request.small_slot_bytes = 4096;
  request.large_slot_bytes = large_slot_bytes;
  return lay_out(request);
}

ProcessIdentity& identity_of(const NodeSegment& segment) {
  return *reinterpret_cast<ProcessIdentity*>(segment.bytes().data());
}

std::string path_of(const std::string& name) { return "/dev/shm" + name; }

class SegmentNameTest : public testing::Test {
 protected:
  /// A /dev/shm of its own where the system allows it: jobs of other tests sweep the common one,
  /// and would take away what a test here counts.
  static void SetUpTestSuite() {
    if (::unshare(CLONE_NEWNS) == 0 &&
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) {
      (void)::mount("own", "/dev/shm", "tmpfs", 0, nullptr);
    }
  }
  void SetUp() override { name_ = NodeSegment::make_name(std::random_device{}()); }
  void TearDown() override {
    EXPECT_FALSE(std::filesystem::exists(std::filesystem::symlink_status(path_of(name_))));
    ::unlink(path_of(name_).c_str());
  }
  /// What attach() says.
  std::string refusal(const SegmentLayout& layout) const {
    try {
      NodeSegment::attach(name_, layout);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::Bootstrap);
      return error.what();
    }
    return "";
  }
  std::string name_;
};

#define EXPECT_HAS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

TEST_F(SegmentNameTest, names_carry_user_and_random_number) {
  EXPECT_EQ(NodeSegment::make_name(0xab),
            "/allrail-" + std::to_string(::geteuid()) + "-00000000000000ab");
}

TEST_F(SegmentNameTest, the_name_goes_when_all_have_attached) {
  NodeSegment creator = NodeSegment::create(name_, layout_of());
  EXPECT_EQ(creator.attached_count(), 1);
  NodeSegment other = NodeSegment::attach(name_, layout_of());
  EXPECT_EQ(creator.attached_count(), 2);
  creator.unlink();
  EXPECT_FALSE(std::filesystem::exists(path_of(name_)));
  creator.small_slot(0)[0] = std::byte{42};
  EXPECT_EQ(other.small_slot(0)[0], std::byte{42});
}

TEST_F(SegmentNameTest, the_name_goes_with_its_creator) {
  NodeSegment moved;
  {
    NodeSegment creator = NodeSegment::create(name_, layout_of());
    moved = std::move(creator);
  }
  EXPECT_TRUE(std::filesystem::exists(path_of(name_)));
}

TEST_F(SegmentNameTest, permissions_do_not_depend_on_the_umask) {
  const mode_t before = ::umask(0777);
  NodeSegment creator = NodeSegment::create(name_, layout_of());
  ::umask(before);
  struct stat status {};
  ASSERT_EQ(::stat(path_of(name_).c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777U, 0600U);
  EXPECT_EQ(static_cast<std::uint64_t>(status.st_size), layout_of().total_bytes);
}

TEST_F(SegmentNameTest, a_name_that_exists_is_never_taken_over) {
  std::ofstream(path_of(name_)) << "precious";
  EXPECT_THROW(NodeSegment::create(name_, layout_of()), Error);
  EXPECT_EQ(std::filesystem::file_size(path_of(name_)), 8U);
  ::unlink(path_of(name_).c_str());
}

TEST_F(SegmentNameTest, a_missing_name_is_told) {
  EXPECT_HAS(refusal(layout_of()), "the same /dev/shm");
}

TEST_F(SegmentNameTest, a_symbolic_link_is_refused) {
  NodeSegment creator = NodeSegment::create(name_, layout_of());
  const std::string link = NodeSegment::make_name(std::random_device{}());
  ASSERT_EQ(::symlink(path_of(name_).c_str(), path_of(link).c_str()), 0);
  EXPECT_THROW(NodeSegment::attach(link, layout_of()), Error);
  ::unlink(path_of(link).c_str());
}

TEST_F(SegmentNameTest, a_mode_that_others_can_read_is_refused) {
  NodeSegment creator = NodeSegment::create(name_, layout_of());
  ::chmod(path_of(name_).c_str(), 0640);
  EXPECT_HAS(refusal(layout_of()), "mode 640");
}

TEST_F(SegmentNameTest, another_owner_is_refused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  NodeSegment creator = NodeSegment::create(name_, layout_of());
  ASSERT_EQ(::chown(path_of(name_).c_str(), 12345, 12345), 0);
  EXPECT_HAS(refusal(layout_of()), "belongs to user 12345");
}

TEST_F(SegmentNameTest, a_short_file_is_refused) {
  NodeSegment creator = NodeSegment::create(name_, layout_of());
  ASSERT_EQ(::truncate(path_of(name_).c_str(), 100), 0);
  EXPECT_HAS(refusal(layout_of()), "has 100 bytes");
}

TEST_F(SegmentNameTest, another_size_is_refused) {
  NodeSegment creator = NodeSegment::create(name_, layout_of());
  EXPECT_HAS(refusal(layout_of(128 << 10)), "equal ALLRAIL settings");
}

TEST_F(SegmentNameTest, another_layout_of_the_same_size_is_refused) {
  NodeSegment creator = NodeSegment::create(name_, layout_of());
  SegmentLayout other = layout_of();
  other.small_slot_bytes -= 1;
  EXPECT_HAS(refusal(lay_out(other)), "laid out for 2 ranks");
}

TEST_F(SegmentNameTest, another_version_is_refused) {
  NodeSegment creator = NodeSegment::create(name_, layout_of());
  creator.header().version = kSegmentVersion + 1;
  EXPECT_HAS(refusal(layout_of()), "the same Allrail");
}

TEST_F(SegmentNameTest, foreign_content_is_refused) {
  NodeSegment creator = NodeSegment::create(name_, layout_of());
  creator.header().magic.store(7);
  EXPECT_HAS(refusal(layout_of()), "never finished");
}

TEST_F(SegmentNameTest, more_than_the_file_system_holds_is_an_error_with_advice) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can mount a small /dev/shm";
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("small", "/dev/shm", "tmpfs", 0, "size=1m") != 0) {
      ::_exit(77);
    }
    int result = 1;
    try {
      NodeSegment::create(name_, layout_of(1 << 20));
    } catch (const Error& error) {
      const std::string text = error.what();
      result = error.code() == Code::ResourceLimit &&
                       text.find("ALLRAIL_NODE_MEMORY") != std::string::npos &&
                       !std::filesystem::exists(path_of(name_))
                   ? 0
                   : 2;
    }
    ::_exit(result);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "died by signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "mount namespaces are not allowed here";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(SegmentNameTest, the_segment_of_a_killed_creator_is_removed) {
  const pid_t child = ::fork();
  if (child == 0) {
    const NodeSegment creator = NodeSegment::create(name_, layout_of());
    ::raise(SIGKILL);
    ::_exit(1);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_TRUE(std::filesystem::exists(path_of(name_)));
  EXPECT_GE(remove_leftovers(), 1);
}

TEST_F(SegmentNameTest, the_segment_of_a_creator_that_nobody_waits_for_is_removed) {
  const pid_t child = ::fork();
  if (child == 0) {
    const NodeSegment creator = NodeSegment::create(name_, layout_of());
    ::raise(SIGKILL);
    ::_exit(1);
  }
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(std::filesystem::exists(path_of(name_)));
  EXPECT_GE(remove_leftovers(), 1);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

/// The launcher's janitor asks again then.
TEST_F(SegmentNameTest, the_segment_of_an_ending_creator_stays_and_is_counted) {
  const pid_t child = ::fork();
  if (child == 0) {
    const NodeSegment creator = NodeSegment::create(name_, layout_of());
    std::thread([] { ::pause(); }).detach();
    ::syscall(SYS_exit, 0);  // of this thread only
  }
  const auto deadline = base::Deadline::after(std::chrono::seconds(10));
  Sweep sweep;
  while (sweep.ending == 0 && !deadline.passed()) {
    sweep = sweep_leftovers(nullptr);
    ::usleep(1000);
  }
  EXPECT_GE(sweep.ending, 1);
  EXPECT_TRUE(std::filesystem::exists(path_of(name_)));
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_GE(sweep_leftovers(nullptr).removed, 1);
}

TEST_F(SegmentNameTest, the_segment_of_a_living_creator_stays) {
  NodeSegment creator = NodeSegment::create(name_, layout_of());
  remove_leftovers();
  EXPECT_TRUE(std::filesystem::exists(path_of(name_)));
}

TEST_F(SegmentNameTest, a_process_number_that_is_used_again_does_not_protect_a_leftover) {
  NodeSegment creator = NodeSegment::create(name_, layout_of());
  identity_of(creator).start_time -= 1;
  EXPECT_GE(remove_leftovers(), 1);
}

TEST_F(SegmentNameTest, another_pid_namespace_is_left_alone) {
  NodeSegment creator = NodeSegment::create(name_, layout_of());
  identity_of(creator).start_time -= 1;
  identity_of(creator).pid_namespace += 1;
  remove_leftovers();
  EXPECT_TRUE(std::filesystem::exists(path_of(name_)));
}

TEST_F(SegmentNameTest, a_file_that_is_no_segment_is_left_alone) {
  std::ofstream(path_of(name_)).close();
  remove_leftovers();
  EXPECT_TRUE(std::filesystem::exists(path_of(name_)));
  ::unlink(path_of(name_).c_str());
}

/// A creator that is killed after any delay leaves at most what the next creator removes.
TEST_F(SegmentNameTest, nothing_stays_wherever_the_creator_is_killed) {
  for (int round = 0; round < 60; ++round) {
    const std::string name = NodeSegment::make_name(std::random_device{}());
    const pid_t child = ::fork();
    if (child == 0) {
      for (;;) {
        NodeSegment creator = NodeSegment::create(name, layout_of(1 << 20));
        creator.unlink();
      }
    }
    ::usleep(static_cast<useconds_t>(200 + round * 97));
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    remove_leftovers();
    EXPECT_FALSE(std::filesystem::exists(path_of(name))) << "round " << round;
    ::unlink(path_of(name).c_str());
  }
}

}  // namespace
}  // namespace allrail::shm
