// What the system refused is told with the limit that did it, and with what to change.
#include "lib/base/error.hpp"

#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "lib/base/handle.hpp"
#include "shm/layout.hpp"
#include "shm/liveness.hpp"
#include "shm/shared_memory.hpp"

namespace allrail::base {
namespace {

constexpr rlim_t kFiles = 3;

/// As long as it lives, this process may have three files, and has them.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    // A sanitizer opens a pipe to find out whether the category of errors is one, the first time.
    (void)errno_text(EMFILE);
    (void)::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{kFiles, before_.rlim_max};
    (void)::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~NoMoreFiles() { (void)::setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit before_{};
};

/// What it says where no file can be opened.
template <class Work>
std::string said(const Work& work) {
  std::optional<NoMoreFiles> none(std::in_place);
  try {
    work();
    return "no error";
  } catch (const Error& error) {
    none.reset();  // a sanitizer looks at errors, too
    EXPECT_EQ(error.code(), Code::ResourceLimit);
    return error.what();
  }
}

constexpr const char* kAdvice =
    "Too many open files; this process may have 3: raise the limit of open files (ulimit -n)";

TEST(Refusal, OfAFileNamesTheLimitAndWhatToChange) {
  EXPECT_EQ(said([] { check_minus_one(::open("/dev/null", O_RDONLY), "opening a file"); }),
            std::string("opening a file: ") + kAdvice);
  EXPECT_EQ(said([] { check_errno_value(EMFILE, "opening a file"); }),
            std::string("opening a file: ") + kAdvice);
  const std::string of_host = refusal_text(ENFILE);
  EXPECT_NE(of_host.find("fs.file-max"), std::string::npos) << of_host;
}

TEST(Refusal, OfAnythingElseIsWhatTheSystemSays) {
  EXPECT_EQ(refusal_text(EACCES), errno_text(EACCES));
}

// The folder is right, so it must not be what is to be changed.
TEST(Refusal, OfAFileOfSharedMemoryIsNoMatterOfItsFolder) {
  for (const bool is_new : {true, false}) {
    const std::string text = said([is_new] {
      is_new ? shm::SharedMemory::create("", shm::kPageBytes)
             : shm::SharedMemory::attach("/allrail-nobody", shm::kPageBytes);
    });
    EXPECT_NE(text.find(kAdvice), std::string::npos) << text;
    EXPECT_EQ(text.find("/dev/shm"), std::string::npos) << text;
  }
}

TEST(Refusal, OfWatchingAProcessNamesTheLimitOnce) {
  const std::string text = said([] {
    const std::vector<pid_t> pids(1, 1);
    const shm::PeerWatch watch(pids);
  });
  EXPECT_NE(text.find("watching process 1"), std::string::npos) << text;
  EXPECT_NE(text.find(kAdvice), std::string::npos) << text;
}

}  // namespace
}  // namespace allrail::base
