// Sorts 32-bit keys that all ranks have together, a digit of eight bits at a time: every rank
// learns how many keys of each digit every rank has (allgather), computes where its keys belong,
// and sends them there (alltoallv). The application of Qian and Afsahi 2007 and 2008.
//   allrail-run -n 8 --nodes 4 radix_sort --keys 1000000 --algorithm auto,direct,smp-bruck
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include <allrail/allrail.hpp>

namespace {

using Keys = std::vector<std::uint32_t>;
using Counts = std::vector<std::size_t>;
constexpr int kDigitBits = 8;
constexpr std::size_t kDigits = 1U << kDigitBits;
using Histogram = std::array<std::uint64_t, kDigits>;

/// The same on every rank.
Keys make_keys(std::size_t count) {
  Keys keys(count);
  std::uint64_t state = 88172645463325252ULL;
  for (std::uint32_t& key : keys) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    key = static_cast<std::uint32_t>(state >> 32);
  }
  return keys;
}

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Keys by place among those of all ranks; each rank has an even part of the places.
class Sorter {
 public:
  Sorter(allrail::Communicator& comm, std::size_t count, const std::string& algorithm,
         const std::string& count_algorithm)
      : comm_(comm),
        count_(count),
        ranks_(static_cast<std::size_t>(comm.size())),
        me_(static_cast<std::size_t>(comm.rank())) {
    for_keys_.algorithm = algorithm == "auto" ? "" : algorithm;
    for_counts_.algorithm = count_algorithm == "auto" ? "" : count_algorithm;
  }

  std::size_t begin_of(std::size_t rank) const { return count_ * rank / ranks_; }

  void sort(Keys& mine) {
    for (int shift = 0; shift < 32; shift += kDigitBits) pass(mine, shift);
  }
  double communication_s() const { return communication_s_; }

 private:
  /// How many of the places [begin, end) belong to a rank.
  std::size_t part_of(std::size_t rank, std::size_t begin, std::size_t end) const {
    const std::size_t from = std::max(begin, begin_of(rank));
    const std::size_t to = std::min(end, begin_of(rank + 1));
    return to > from ? to - from : 0;
  }

  /// Sorts by one digit and keeps the order of keys with equal ones.
  void pass(Keys& mine, int shift) {
    const auto digit_of = [shift](std::uint32_t key) { return key >> shift & (kDigits - 1); };
    std::vector<Histogram> local(1);
    for (const std::uint32_t key : mine) ++local[0][digit_of(key)];
    std::vector<Histogram> all(ranks_);
    auto begin = std::chrono::steady_clock::now();
    comm_.allgather(local, all, for_counts_);
    communication_s_ += seconds_since(begin);

    // Keys of a digit lie behind all of lower digits, and among themselves in order of the ranks.
    std::vector<std::array<std::size_t, kDigits>> place(ranks_);  // of each rank's first
    std::size_t next = 0;
    for (std::size_t digit = 0; digit < kDigits; ++digit) {
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        place[rank][digit] = next;
        next += all[rank][digit];
      }
    }
    Counts to(ranks_);
    Counts from(ranks_);
    for (std::size_t digit = 0; digit < kDigits; ++digit) {
      for (std::size_t rank = 0; rank < ranks_; ++rank) {
        to[rank] += part_of(rank, place[me_][digit], place[me_][digit] + all[me_][digit]);
        from[rank] += part_of(me_, place[rank][digit], place[rank][digit] + all[rank][digit]);
      }
    }
    std::ranges::stable_sort(mine, {}, digit_of);
    Keys received(mine.size());
    begin = std::chrono::steady_clock::now();
    comm_.alltoallv(mine, received, to, from, for_keys_);
    communication_s_ += seconds_since(begin);

    // What came from a rank is in order of its places.
    std::size_t at = 0;
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      for (std::size_t digit = 0; digit < kDigits; ++digit) {
        const std::size_t first = place[rank][digit];
        const std::size_t keys = part_of(me_, first, first + all[rank][digit]);
        const std::size_t offset = std::max(first, begin_of(me_)) - begin_of(me_);
        std::copy_n(received.begin() + static_cast<std::ptrdiff_t>(at), keys,
                    mine.begin() + static_cast<std::ptrdiff_t>(keys > 0 ? offset : 0));
        at += keys;
      }
    }
  }

  allrail::Communicator& comm_;
  std::size_t count_, ranks_, me_;
  allrail::CallOptions for_keys_, for_counts_;
  double communication_s_ = 0;
};

int run(const std::map<std::string, std::string>& words) {
  const auto count = static_cast<std::size_t>(std::stoul(words.at("--keys")));
  allrail::Communicator comm = allrail::Communicator::world();
  const Keys keys = make_keys(count);
  Keys expected = keys;
  std::ranges::sort(expected);
  std::istringstream algorithms(words.at("--algorithm"));
  for (std::string algorithm; std::getline(algorithms, algorithm, ',');) {
    Sorter sorter(comm, count, algorithm, words.at("--count-algorithm"));
    const auto me = static_cast<std::size_t>(comm.rank());
    const auto begin_at = static_cast<std::ptrdiff_t>(sorter.begin_of(me));
    const auto end_at = static_cast<std::ptrdiff_t>(sorter.begin_of(me + 1));
    Keys mine(keys.begin() + begin_at, keys.begin() + end_at);
    comm.barrier();
    const auto begin = std::chrono::steady_clock::now();
    sorter.sort(mine);
    const std::array<double, 2> times{sorter.communication_s(), seconds_since(begin)};
    std::vector<std::array<double, 2>> of_ranks(static_cast<std::size_t>(comm.size()));
    comm.allgather(std::vector{times}, of_ranks);
    const auto slowest = std::ranges::max(of_ranks);
    const bool is_right = std::equal(mine.begin(), mine.end(), expected.begin() + begin_at);
    if (!is_right || comm.rank() == 0) {
      std::ostringstream line;
      line << "radix_sort: " << count << " keys, " << comm.size() << " ranks on "
           << comm.node_count() << " nodes, " << algorithm << ": " << 1e3 * slowest[0]
           << " ms of communication in " << 1e3 * slowest[1] << " ms; "
           << (is_right ? "sorted as" : "NOT sorted as") << " on one processor\n";
      std::cout << line.str() << std::flush;
    }
    if (!is_right) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> words{
      {"--keys", "100000"}, {"--algorithm", "auto"}, {"--count-algorithm", "auto"}};
  for (int at = 1; at < argc; at += 2) {
    if (!words.contains(argv[at]) || at + 1 == argc) {
      std::cerr << "usage: radix_sort [--keys N] [--algorithm NAME[,NAME...]] "
                   "[--count-algorithm NAME]\n";
      return 2;
    }
    words[argv[at]] = argv[at + 1];
  }
  try {
    return run(words);
  } catch (const std::exception& error) {
    std::cerr << "radix_sort failed: " << error.what() << '\n';
    return 1;
  }
}
