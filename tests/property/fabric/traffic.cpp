#include "tests/property/fabric/traffic.hpp"

#include <algorithm>
#include <cstring>
#include <deque>

#include <fmt/core.h>

#include "tests/bytes.hpp"
#include "tests/property/fabric/faults.hpp"
#include "tests/property/fabric/random.hpp"
#include "tests/property/fabric/world.hpp"

namespace allrail::transport {

namespace {

constexpr std::byte kGuard{0xEE};     // memory that no put names
constexpr std::byte kConsumed{0xDD};  // memory whose put was consumed
constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kLongestRun = 120'000 * kMillisecond;

/// One put, seen from both ends.
struct Exchange {
  std::vector<std::byte> from;
  std::vector<std::byte> expected;
  std::uint64_t offset = 0;
  std::uint64_t number = 0;
  bool second_window = false;
  bool sent = false, completed = false, announced = false, consumed = false;
};

class Traffic {
 public:
  explicit Traffic(std::uint64_t seed) : random_{seed}, world_(make_options(seed)) {
    const auto ranks = static_cast<std::size_t>(world_.ranks());
    second_.resize(ranks);
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      std::ranges::fill(world_.memory(static_cast<int>(rank)), kGuard);
      second_[rank].assign(kWorldMemoryBytes, kGuard);
      windows_.push_back(world_.fabric(static_cast<int>(rank)).register_window(second_[rank]));
    }
    plan_puts();
    faults_ = plan_faults(random_, world_, cables_, rail_count_);
  }

  RunResult run() {
    world_.connect_all();
    const std::int64_t start_ns = now();
    while (!finished() && result_.error.empty()) {
      if (now() - start_ns > kLongestRun) return fail("not finished after 120 s of virtual time");
      one_step();
    }
    if (!result_.error.empty()) return result_;
    // Whatever is still under way must land nowhere.
    const std::int64_t end_ns = now() + 3'000 * kMillisecond;
    heal_rest(faults_, world_.network());
    while (now() < end_ns) world_.step(20 * kMillisecond);
    check_memory();
    check_counters();
    check_partners();
    return result_;
  }

 private:
  std::uint64_t below(std::uint64_t limit) { return random_.below(limit); }
  bool chance(unsigned percent) { return random_.chance(percent); }
  std::int64_t now() { return world_.network().now_ns(); }

  RunResult& fail(std::string text) {
    if (result_.error.empty()) result_.error = std::move(text);
    return result_;
  }

  WorldOptions make_options(std::uint64_t seed) {
    WorldOptions options;
    options.seed = seed * 7919 + 1;
    options.ranks = 2 + static_cast<int>(below(3));
    options.rails.clear();
    rail_count_ = 1 + below(3);
    for (std::uint64_t i = 0; i < rail_count_; ++i) {
      FakeRailOptions rail;
      rail.bytes_per_second = 1e7 * static_cast<double>(1 + below(100));
      rail.delay_ns = static_cast<std::int64_t>(1'000 + below(200'000));
      rail.jitter_ns = static_cast<std::int64_t>(below(3) * 100'000);
      rail.queue_depth = 1 + static_cast<int>(below(80));
      rail.duplicate_chance = chance(30) ? 0.2 : 0;
      rail.reads_payload = chance(40);
      options.rails.push_back(rail);
    }
    if (chance(50)) plug(options);
    options.glances = chance(50);
    cables_ = options.cables;
    options.fabric.stripe_threshold_bytes = 512;
    options.fabric.chunk_bytes = 512U << below(5);
    options.fabric.no_link_limit_ns = kLongestRun;
    options.fabric.may_hold = chance(50);
    is_stream_ = chance(50);
    return options;
  }

  /// Every rank has cable 0 and some of the others, in an order of its own.
  void plug(WorldOptions& options) {
    for (int rank = 0; rank < options.ranks; ++rank) {
      std::vector<int> cables = {0};
      for (int cable = 1; cable < static_cast<int>(options.rails.size()); ++cable)
        if (chance(70)) cables.push_back(cable);
      for (std::size_t i = cables.size(); i > 1; --i) std::swap(cables[i - 1], cables[below(i)]);
      options.cables.push_back(cables);
    }
  }

  std::size_t pair(int from, int to) const {
    return static_cast<std::size_t>(from) * second_.size() + static_cast<std::size_t>(to);
  }

  void plan_puts() {
    const std::size_t ranks = second_.size();
    puts_.resize(ranks * ranks);
    for (auto* positions : {&sent_, &first_open_, &first_unconsumed_})
      positions->resize(ranks * ranks);
    std::vector<std::uint64_t> used(2 * ranks, 64);
    const std::uint64_t most = chance(4) ? 300 : is_stream_ ? 60 : 16;
    for (int from = 0; from < world_.ranks(); ++from)
      for (int to = 0; to < world_.ranks(); ++to) {
        if (from == to) continue;
        const std::uint64_t count = below(most);
        for (std::uint64_t i = 0; i < count; ++i) {
          const std::uint64_t bytes =
              chance(is_stream_ ? 97 : 60) ? 1 + below(512) : 1 + below(40'000);
          Exchange put;
          put.second_window = chance(30);
          std::uint64_t& end = used[2 * static_cast<std::size_t>(to) + (put.second_window ? 1 : 0)];
          put.offset = end;
          if (end + bytes + 16 > kWorldMemoryBytes) break;
          end += bytes + below(16);
          put.from.resize(bytes);
          fill_randomly(put.from, random_);
          put.expected = put.from;
          puts_[pair(from, to)].push_back(std::move(put));
          ++total_;
        }
      }
  }

  void send(int from, int to) {
    auto& puts = puts_[pair(from, to)];
    std::size_t& next = sent_[pair(from, to)];
    Fabric& fabric = world_.fabric(from);
    while (next < puts.size() && fabric.can_put(to) && !chance(is_stream_ ? 3 : 30)) {
      Exchange& put = puts[next++];
      Put what;
      what.peer = to;
      what.from = put.from.data();
      what.bytes = put.from.size();
      what.offset = put.offset;
      what.window = put.second_window ? &windows_[static_cast<std::size_t>(to)] : nullptr;
      what.port = static_cast<int>(below(3));
      what.coalesce = is_stream_ || what.bytes % 2 == 0;
      what.call = ++call_;
      put.number = fabric.put(what);
      if (fabric.holds()) {
        ++result_.held;
      } else {
        check_submitted(from, "put");
      }
      if (chance(5)) {
        fabric.hand_over();
        check_submitted(from, "hand_over");
      }
      put.sent = true;
      if (put.number != next - 1) fail("put numbers are not in order");
    }
    std::size_t& first = first_open_[pair(from, to)];
    while (first < next && puts[first].completed) ++first;
    for (std::size_t i = first; i < next; ++i) {
      Exchange& put = puts[i];
      if (put.completed || !fabric.completed(to, put.number)) continue;
      put.completed = true;
      ++completed_;
      std::memset(put.from.data(), 0xCC, put.from.size());
    }
  }

  void receive(int from, int to) {
    Fabric& fabric = world_.fabric(to);
    auto& puts = puts_[pair(from, to)];
    std::size_t& first = first_unconsumed_[pair(from, to)];
    while (first < puts.size() && puts[first].consumed) ++first;
    for (std::size_t i = first; i < puts.size(); ++i) {
      Exchange& put = puts[i];
      if (put.consumed) continue;
      if (!put.announced) {
        if (!fabric.can_expect(from) || chance(20)) break;
        if (fabric.expect(from, put.expected.size()) != i)
          fail("expected numbers are not in order");
        put.announced = true;
      }
      if (!fabric.arrived(from, i) || chance(30)) continue;
      const std::span<std::byte> memory = window(to, put.second_window);
      const auto region = memory.subspan(put.offset, put.expected.size());
      if (!same_bytes(region, put.expected))
        fail(fmt::format("put {} from {} to {} arrived with wrong bytes", i, from, to));
      std::memset(region.data(), std::to_integer<int>(kConsumed), region.size());
      fabric.consume(from, i);
      put.consumed = true;
      ++consumed_;
    }
    if (!chance(20)) return;
    fabric.flush_acknowledgements();
    check_submitted(to, "flush_acknowledgements");
  }

  /// Nothing that the fabric posted lies in a rail when it returns.
  void check_submitted(int rank, std::string_view function) {
    if (!world_.network().all_submitted(rank))
      fail(fmt::format("{}() of rank {} left something in a rail", function, rank));
  }

  std::span<std::byte> window(int rank, bool second) {
    if (second) return second_[static_cast<std::size_t>(rank)];
    return world_.memory(rank);
  }

  void one_step() {
    apply_due(faults_, world_.network());
    bool any = false;
    for (int rank = 0; rank < world_.ranks(); ++rank) {
      if (chance(20)) continue;
      any = world_.fabric(rank).progress() || any;
      check_submitted(rank, "progress");
      if (world_.fabric(rank).failure()) fail(world_.fabric(rank).failure()->text);
      for (int peer = 0; peer < world_.ranks(); ++peer) {
        if (peer == rank || chance(30)) continue;
        const std::size_t before = completed_ + consumed_;
        send(rank, peer);
        receive(peer, rank);
        any = any || before != completed_ + consumed_;
      }
    }
    if (!any) world_.network().advance(2 * kMillisecond);
  }

  bool finished() const { return completed_ == total_ && consumed_ == total_; }

  void check_memory() {
    for (int rank = 0; rank < world_.ranks(); ++rank)
      for (const bool second : {false, true}) {
        const std::span<std::byte> memory = window(rank, second);
        for (int from = 0; from < world_.ranks(); ++from) {
          for (const Exchange& put : puts_[pair(from, rank)]) {
            if (put.second_window != second) continue;
            const auto region = memory.subspan(put.offset, put.expected.size());
            if (!all_are(region, kConsumed))
              fail(fmt::format("memory of rank {} was written after put {} from {} was consumed",
                               rank, put.number, from));
            std::memset(region.data(), std::to_integer<int>(kGuard), region.size());
          }
        }
        if (!all_are(memory, kGuard))
          fail(fmt::format("rank {} was written to outside of all puts", rank));
      }
  }

  /// Wherever two ranks have a cable in common they have found it; no other rails are partners.
  void check_partners() {
    for (int rank = 0; rank < world_.ranks(); ++rank)
      for (int peer = 0; peer < world_.ranks(); ++peer) {
        if (rank == peer) continue;
        for (int cable = 0; cable < static_cast<int>(rail_count_); ++cable) {
          const auto mine = port_on(cables_, rank, cable);
          const auto theirs = port_on(cables_, peer, cable);
          if (!mine) continue;
          const int expected = theirs ? theirs->rail : -1;
          const int partner = world_.fabric(rank).partner(peer, mine->rail);
          if (partner != expected)
            fail(fmt::format("rail {} of rank {} is joined with rail {} of rank {}, not {}",
                             mine->rail, rank, partner, peer, expected));
        }
      }
  }

  void check_counters() {
    std::uint64_t bytes = 0;
    for (const auto& puts : puts_)
      for (const Exchange& put : puts) bytes += put.expected.size();
    RailCounters all;
    for (int rank = 0; rank < world_.ranks(); ++rank) {
      Fabric& fabric = world_.fabric(rank);
      if (fabric.oldest_open_call() != UINT64_MAX || !fabric.flushed())
        fail(fmt::format("rank {} has something left in flight", rank));
      for (const RailCounters& rail : fabric.counters()) {
        all.chunks_sent += rail.chunks_sent;
        all.chunks_received += rail.chunks_received;
        all.bytes_received += rail.bytes_received;
        all.replays += rail.replays;
        all.duplicates += rail.duplicates;
        all.fences += rail.fences;
      }
    }
    if (all.bytes_received != bytes)
      fail(fmt::format("{} bytes were counted as received, not {}", all.bytes_received, bytes));
    if (all.chunks_sent - all.replays != all.chunks_received)
      fail(fmt::format("{} chunks sent, {} of them again, but {} received", all.chunks_sent,
                       all.replays, all.chunks_received));
    result_.chunks = all.chunks_received;
    result_.fences = all.fences;
    result_.replays = all.replays;
    result_.duplicates = all.duplicates;
  }

  Random random_;
  std::uint64_t rail_count_ = 0;
  bool is_stream_ = false;                // no put is answered
  std::vector<std::vector<int>> cables_;  // as in WorldOptions
  World world_;
  std::vector<std::vector<std::byte>> second_;
  std::vector<RemoteWindow> windows_;
  std::vector<std::vector<Exchange>> puts_;
  std::vector<std::size_t> sent_, first_open_, first_unconsumed_;  // by pair
  std::vector<Fault> faults_;
  std::uint64_t call_ = 0;
  std::size_t total_ = 0;
  std::size_t completed_ = 0;
  std::size_t consumed_ = 0;
  RunResult result_;
};

}  // namespace

RunResult run_traffic(std::uint64_t seed) { return Traffic(seed).run(); }

}  // namespace allrail::transport
