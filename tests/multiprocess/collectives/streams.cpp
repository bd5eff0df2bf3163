// A mode in which ranks make many small calls of one kind back to back, and those that send are
// away after the last: stream.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {
namespace {

constexpr int kRoot = 0;

class Stream {
 public:
  explicit Stream(const Arguments& arguments)
      : me_(communicator_.rank()),
        kind_(arguments.text("kind", "broadcast")),
        folder_(arguments.text("folder", "")),
        block_(static_cast<std::size_t>(arguments.number("bytes", 8))),
        all_(block_.size() * static_cast<std::size_t>(communicator_.size())) {}

  bool only_sends() const { return (kind_ == "gather") != (me_ == kRoot); }

  void call(std::uint64_t number) {
    if (kind_ == "broadcast") {
      if (me_ == kRoot) fill_pattern(block_, kRoot, number);
      communicator_.broadcast(block_, kRoot);
      check(block_, kRoot, number);
    } else if (kind_ == "scatter") {
      if (me_ == kRoot) fill_all(number);
      communicator_.scatter(std::span<const unsigned char>(all_), block_, kRoot);
      check(block_, me_, number);
    } else {
      fill_pattern(block_, me_, number);
      communicator_.gather(std::span<const unsigned char>(block_), all_, kRoot);
      if (me_ == kRoot) check_all(number);
    }
  }

  /// Whoever only sends is away until all others have everything.
  void end() {
    if (!only_sends()) {
      std::ofstream(folder_ / std::to_string(me_)).put('\n');
      return;
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!all_have_everything()) {
      if (std::chrono::steady_clock::now() > end) {
        throw WrongBytes("wrong: what was sent does not arrive while its sender is away");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void leave() {
    communicator_.barrier();
    if (me_ == kRoot) say("stream done");
  }

 private:
  bool all_have_everything() const {
    int ranks = 0;
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      if (std::filesystem::exists(folder_ / std::to_string(rank))) ++ranks;
    }
    return ranks == (kind_ == "gather" ? 1 : communicator_.size() - 1);
  }
  std::span<unsigned char> block_of(int rank) {
    return std::span(all_).subspan(block_.size() * static_cast<std::size_t>(rank), block_.size());
  }
  void fill_all(std::uint64_t number) {
    for (int rank = 0; rank < communicator_.size(); ++rank) {
      fill_pattern(block_of(rank), rank, number);
    }
  }
  void check_all(std::uint64_t number) {
    for (int rank = 0; rank < communicator_.size(); ++rank) check(block_of(rank), rank, number);
  }
  void check(std::span<const unsigned char> block, int from, std::uint64_t number) const {
    if (const auto wrong = find_wrong_byte(block, from, number); wrong >= 0) {
      throw WrongBytes("wrong byte at rank " + std::to_string(me_) + ": byte " +
                       std::to_string(wrong) + " of call " + std::to_string(number));
    }
  }

  allrail::Communicator communicator_ = allrail::Communicator::world();
  int me_;
  std::string kind_;
  std::filesystem::path folder_;
  std::vector<unsigned char> block_;
  std::vector<unsigned char> all_;
};

}  // namespace

int run_stream(const Arguments& arguments) {
  Stream stream(arguments);
  if (!stream.only_sends()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(arguments.number("late_ms", 0)));
  }
  const auto calls = static_cast<std::uint64_t>(arguments.number("calls", 100));
  for (std::uint64_t call = 1; call <= calls; ++call) stream.call(call);
  stream.end();
  stream.leave();
  return 0;
}

}  // namespace probe
