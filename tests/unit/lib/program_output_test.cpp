// Other programs: their output, however long, and an answer in time, whatever they do.
#include "lib/program_output.hpp"

#include <chrono>

#include <gtest/gtest.h>

namespace allrail {
namespace {

using namespace std::chrono_literals;

ProgramOutput shell(const std::string& script, std::chrono::milliseconds limit = 60s) {
  return output_of({"sh", "-c", script}, base::Deadline::after(limit));
}

TEST(ProgramOutput, IsReadToItsEnd) {
  EXPECT_EQ(shell("echo hello; echo complaint >&2").text, "hello\n");
  EXPECT_EQ(shell("echo hello").problem, "");
  const ProgramOutput much = shell("head -c 3000000 /dev/zero");
  EXPECT_EQ(much.text.size(), 3'000'000U);
  EXPECT_EQ(shell("cat").text, "") << "its input is empty";
}

TEST(ProgramOutput, OfAProgramThatFailsIsAProblem) {
  const ProgramOutput failed = shell("echo half; exit 3");
  EXPECT_EQ(failed.problem, "sh ended with exit code 3");
  EXPECT_EQ(failed.text, "") << "half an answer is none";
  EXPECT_NE(shell("kill -TERM $$").problem.find("signal"), std::string::npos);
  const ProgramOutput missing = output_of({"no-such-program-of-allrail"}, base::Deadline::never());
  EXPECT_NE(missing.problem.find("no-such-program-of-allrail cannot be started"),
            std::string::npos);
}

TEST(ProgramOutput, EndsAtTheDeadline) {
  EXPECT_EQ(shell("echo half; exec sleep 600", 50ms).problem, "sh did not end in time");
  // It says that it is done, and runs on.
  const ProgramOutput closed = shell("exec >/dev/null; exec sleep 600", 50ms);
  EXPECT_NE(closed.problem.find("did not end in time"), std::string::npos);
}

}  // namespace
}  // namespace allrail
