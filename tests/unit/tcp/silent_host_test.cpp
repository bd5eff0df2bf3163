// A host that answers nothing any more, not even its kernel: here, connections whose packets are
// dropped as they arrive. A program of its own, since that takes as long as it takes.
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include "tests/unit/tcp/test_rails.hpp"
#include "transport/tcp/socket.hpp"

namespace allrail::transport {
namespace {

/// Every connection of this process hears nothing from here on. How many there are; -1: the system
/// does not let sockets have filters.
int silence_connections() {
  sock_filter drop{BPF_RET | BPF_K, 0, 0, 0};
  sock_fprog program{1, &drop};
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    sockaddr_storage peer{};
    socklen_t bytes = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &bytes) != 0) continue;
    if (::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0) return -1;
    ++count;
  }
  return count;
}

/// One that only receives has nothing under way but words, and one that has just connected has not
/// got so far.
TEST(SilentHost, EndsLinksWithoutChunksAndHandshakes) {
  TestJob linked(2, 64);
  linked.connect(0, 1);
  ASSERT_TRUE(linked.poll_until([&] { return linked.linked(0, 1); }));
  TestJob greeting(2, 64);
  greeting.connect(0, 1);
  greeting[0].rail->poll(greeting[0].events);
  // The third may still be on its way.
  int silenced = 0;
  while ((silenced = silence_connections()) >= 0 && silenced < 3) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (silenced < 0) GTEST_SKIP() << "sockets may not have filters here";
  ASSERT_TRUE(linked[0].rail->post_control(1, std::vector<std::byte>(8)));

  const base::Deadline deadline =
      base::Deadline::after(std::chrono::seconds(2 * kSilenceLimitSeconds));
  const auto& of_link = linked[0].events;
  const auto& of_greeting = greeting[0].events;
  while (!deadline.passed() && (of_link.downs.empty() || of_greeting.downs.empty())) {
    linked[0].rail->poll(linked[0].events);
    greeting[0].rail->poll(greeting[0].events);
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  EXPECT_EQ(of_link.downs.size(), 1U);
  EXPECT_EQ(of_greeting.downs.size(), 1U);
  for (const std::string& reason : {of_link.last_reason, of_greeting.last_reason}) {
    EXPECT_NE(reason.find("its host has not answered for 20 s"), std::string::npos) << reason;
  }
}

}  // namespace
}  // namespace allrail::transport
