// Falling asleep against a raiser whose store lies in its store buffer: the one order that loses a
// wake-up without membarrier(2), played step by step instead of waited for.
//
// syscall(2) is replaced. The raiser is played at a chosen moment: it "stores" its flag, which
// stays invisible, and looks at the count of sleepers. Its store becomes visible when the sleeper
// runs membarrier after that moment, or when the raiser takes the slow path, which has a fence;
// otherwise not before the sleeper sleeps. A rank that lies down then has lost a wake-up.
#include <cerrno>
#include <cstdarg>
#include <cstdlib>
#include <functional>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>

#include "shm/wait.hpp"

namespace {

bool without_membarrier() { return std::getenv("ALLRAIL_TEST_NO_MEMBARRIER") != nullptr; }

struct Hooks {
  std::function<void()> before_membarrier, membarrier, after_membarrier;
  std::function<void(std::uint32_t* word, std::uint32_t value)> futex_wait;
};
Hooks* hooks = nullptr;

}  // namespace

// NOLINTNEXTLINE(cert-dcl50-cpp): the C library's own prototype.
extern "C" long syscall(long number, ...) noexcept {
  std::va_list list;
  va_start(list, number);
  long arguments[6];
  for (long& argument : arguments) argument = va_arg(list, long);
  va_end(list);
  if (number == SYS_membarrier && without_membarrier()) {
    errno = ENOSYS;
    return -1;
  }
  if (hooks != nullptr && number == SYS_membarrier &&
      arguments[0] == MEMBARRIER_CMD_GLOBAL_EXPEDITED) {
    hooks->before_membarrier();
    hooks->membarrier();
    hooks->after_membarrier();
    return 0;
  }
  if (hooks != nullptr && number == SYS_futex && arguments[1] == FUTEX_WAIT) {
    hooks->futex_wait(reinterpret_cast<std::uint32_t*>(arguments[0]),
                      static_cast<std::uint32_t>(arguments[2]));
    errno = EAGAIN;
    return -1;
  }
  using Syscall = long (*)(long, ...);
  static const auto real = reinterpret_cast<Syscall>(::dlsym(RTLD_NEXT, "syscall"));
  return real(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
              arguments[5]);
}

namespace allrail::shm {
namespace {

/// When the raiser raises its flag.
enum class Moment { BeforeSleeping, BeforeMembarrier, AfterMembarrier, BeforeLook, BeforeFutex };

class SleepProtocol : public ::testing::TestWithParam<Moment> {
 protected:
  void SetUp() override {
    SegmentLayout request;
    request.ranks = 2;
    request.small_slot_bytes = 64;
    request.large_slots = 0;
    views_ = NodeSegment::in_memory(lay_out(request));
    hooks_.before_membarrier = [this] { at(Moment::BeforeMembarrier); };
    hooks_.membarrier = [this] {
      ++membarriers_;
      become_visible();
    };
    hooks_.after_membarrier = [this] { at(Moment::AfterMembarrier); };
    hooks_.futex_wait = [this](std::uint32_t* word, std::uint32_t value) {
      at(Moment::BeforeFutex);
      if (std::atomic_ref<std::uint32_t>(*word).load() != value) return;  // it does not sleep
      slept_ = true;
      become_visible();
    };
    hooks = &hooks_;
  }
  void TearDown() override { hooks = nullptr; }

  void at(Moment moment) {
    if (moment != GetParam() || raised_) return;
    raised_ = buffered_ = true;
    // What notify() does after the store; the slow path begins with a fence.
    if (views_[0].header().sleepers.load() == 0) return;
    become_visible();
    wake_sleepers(views_[0]);
  }
  void become_visible() {
    if (!buffered_) return;
    buffered_ = false;
    views_[0].flag(0, 0).value.store(1);
  }

  std::vector<NodeSegment> views_;
  bool raised_ = false;
  bool buffered_ = false;
  bool slept_ = false;
  int membarriers_ = 0;

 private:
  Hooks hooks_;
};

INSTANTIATE_TEST_SUITE_P(Moments, SleepProtocol,
                         ::testing::Values(Moment::BeforeSleeping, Moment::BeforeMembarrier,
                                           Moment::AfterMembarrier, Moment::BeforeLook,
                                           Moment::BeforeFutex));

TEST_P(SleepProtocol, LosesNoFlagThatLiesInAStoreBuffer) {
  if (without_membarrier() &&
      (GetParam() == Moment::BeforeMembarrier || GetParam() == Moment::AfterMembarrier)) {
    GTEST_SKIP() << "there is no membarrier here";
  }
  at(Moment::BeforeSleeping);
  const bool saw_it = sleep_until(
      views_[1], 1,
      [this] {
        at(Moment::BeforeLook);
        return reached(views_[1].flag(0, 0), 1);
      },
      kMaxSleepMs);
  EXPECT_TRUE(raised_);
  EXPECT_FALSE(slept_) << "it lay down while the flag was raised";
  EXPECT_TRUE(saw_it);
  EXPECT_EQ(membarriers_, without_membarrier() ? 0 : 1);
  EXPECT_EQ(sleeps_by_membarrier(), !without_membarrier());
}

}  // namespace
}  // namespace allrail::shm
