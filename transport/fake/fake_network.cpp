#include "transport/fake/fake_network.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/fake/fake_rail.hpp"

namespace allrail::transport {

namespace {

constexpr std::int64_t kMillisecond = 1'000'000;
constexpr std::int64_t kFirstBackoff = 100 * kMillisecond;
constexpr std::int64_t kLastBackoff = 1'000 * kMillisecond;

}  // namespace

struct FakeNetwork::Parcel {
  Chunk chunk;
  std::uint64_t generation = 0;
  bool late = false;
  std::vector<std::byte> bytes;  // as posted: what lands late, when the sender's memory may be new
};

FakeNetwork::FakeNetwork(std::uint64_t seed, int ranks, std::vector<FakeRailOptions> rails)
    : ranks_(ranks),
      options_(std::move(rails)),
      engine_(seed),
      rails_(static_cast<std::size_t>(ranks) * options_.size()) {
  for (std::size_t i = 0; i < rails_.size(); ++i)
    cables_.push_back(static_cast<int>(i % options_.size()));
}

FakeNetwork::~FakeNetwork() = default;

std::unique_ptr<Rail> FakeNetwork::make_rail(int rank, int index) {
  auto rail = std::make_unique<FakeRail>(*this, rank, index);
  rails_[static_cast<std::size_t>(rank) * options_.size() + static_cast<std::size_t>(index)] =
      rail.get();
  return rail;
}

std::vector<std::byte> FakeNetwork::address_of(int rank, int index) {
  return {static_cast<std::byte>(rank), static_cast<std::byte>(index)};
}

void FakeNetwork::plug(int rank, int index, int cable) {
  cables_[static_cast<std::size_t>(rank) * options_.size() + static_cast<std::size_t>(index)] =
      cable;
}

bool FakeNetwork::all_submitted(int rank) const {
  const auto count = options_.size();
  const auto first = rails_.begin() + rank * static_cast<std::ptrdiff_t>(count);
  return std::all_of(first, first + static_cast<std::ptrdiff_t>(count),
                     [](const FakeRail* rail) { return rail == nullptr || rail->flushed(); });
}

FakeRail* FakeNetwork::rail(Port port) const {
  return rails_[static_cast<std::size_t>(port.rank) * options_.size() +
                static_cast<std::size_t>(port.rail)];
}

FakeNetwork::Link& FakeNetwork::link(Port one, Port other) {
  if (one.rank > other.rank) std::swap(one, other);
  auto& slot = links_[{one.rank, one.rail, other.rank, other.rail}];
  if (slot == nullptr) {
    slot = std::make_unique<Link>();
    slot->ports[0] = one;
    slot->ports[1] = other;
  }
  return *slot;
}

bool FakeNetwork::reaches(const Link& link) const {
  const auto cable_of = [&](const Port& port) {
    return cables_[static_cast<std::size_t>(port.rank) * options_.size() +
                   static_cast<std::size_t>(port.rail)];
  };
  return !link.cut && cable_of(link.ports[0]) == cable_of(link.ports[1]);
}

void FakeNetwork::at(std::int64_t time_ns, std::function<void()> run) {
  events_.push({std::max(time_ns, now_ns_), next_order_++, std::move(run)});
}

std::int64_t FakeNetwork::random(std::int64_t limit) {
  return limit <= 0 ? 0 : static_cast<std::int64_t>(engine_() % static_cast<std::uint64_t>(limit));
}

bool FakeNetwork::chance(double probability) {
  return static_cast<double>(engine_() >> 11) * 0x1p-53 < probability;
}

void FakeNetwork::advance(std::int64_t longest_ns) {
  if (events_.empty() || events_.top().time_ns > now_ns_ + longest_ns) {
    now_ns_ += longest_ns;
    return;
  }
  now_ns_ = events_.top().time_ns;
  const auto run = events_.top().run;
  events_.pop();
  run();
}

// ---- links -------------------------------------------------------------------------------------

void FakeNetwork::attempt_later(Link& link, std::int64_t delay_ns) {
  if (link.attempt_pending) return;
  link.attempt_pending = true;
  at(now_ns_ + delay_ns, [this, &link] {
    link.attempt_pending = false;
    attempt(link);
  });
}

void FakeNetwork::attempt(Link& link) {
  End& low = link.ends[0];
  End& high = link.ends[1];
  if (!low.wanted || low.up) return;
  FakeRail* const connecting = rail(link.ports[0]);
  FakeRail* const accepting = rail(link.ports[1]);
  const bool frozen = low.frozen_until_ns > now_ns_ || high.frozen_until_ns > now_ns_;
  if (reaches(link) && (accepting == nullptr || !accepting->wanted_.contains(connecting->rank_))) {
    FakeRail::Report report;
    report.kind = FakeRail::Report::Kind::Answered;
    report.peer = link.ports[1].rank;
    connecting->reports_.push_back(std::move(report));
    return;  // the peer's connect() tries again
  }
  if (!reaches(link) || frozen) {
    link.backoff_ns = std::clamp(2 * link.backoff_ns, kFirstBackoff, kLastBackoff);
    FakeRail::Report report;
    report.kind = FakeRail::Report::Kind::Down;
    report.peer = link.ports[1].rank;
    report.reason = "connecting timed out";
    connecting->reports_.push_back(std::move(report));
    attempt_later(link, link.backoff_ns);
    return;
  }
  // A rail has one link to a peer.
  for (const auto& [key, other] : links_) {
    const bool same_end = other->ports[1].rank == link.ports[1].rank &&
                          other->ports[1].rail == link.ports[1].rail &&
                          other->ports[0].rank == link.ports[0].rank;
    if (same_end && other->ends[1].up) end_down(*other, 1, "the peer connected anew", true);
  }
  link.backoff_ns = 0;
  link.broken = false;
  ++link.generation;
  for (int side = 0; side < 2; ++side) {
    End& end = link.ends[side];
    end.up = true;
    end.generation = link.generation;
    end.in_flight.clear();
    end.in_flight_bytes = 0;
    end.last_arrival_ns = 0;
    FakeRail::Report report;
    report.peer = link.ports[1 - side].rank;
    report.peer_rail = link.ports[1 - side].rail;
    FakeRail& reporting = side == 0 ? *connecting : *accepting;
    reporting.partners_[report.peer] = report.peer_rail;
    reporting.reports_.push_back(std::move(report));
  }
}

void FakeNetwork::attempt_all(Port to, int from_rank) {
  for (const auto& [key, one] : links_) {
    const bool fits = one->ports[1].rank == to.rank && one->ports[1].rail == to.rail &&
                      one->ports[0].rank == from_rank;
    if (fits && one->ends[0].wanted) attempt_later(*one, random(1'000));
  }
}

void FakeNetwork::end_down(Link& link, int side, const std::string& reason, bool report) {
  End& end = link.ends[side];
  if (!end.up) return;
  end.up = false;
  end.held.clear();
  FakeRail* mine = rail(link.ports[side]);
  const int peer = link.ports[1 - side].rank;
  if (report && mine != nullptr) {
    // Completions and messages that were not reported may be lost with the link, or not.
    if (chance(0.5)) mine->purge(peer, false);
    FakeRail::Report down;
    down.kind = FakeRail::Report::Kind::Down;
    down.peer = peer;
    down.reason = reason;
    mine->reports_.push_back(std::move(down));
  }
  // The other end learns it from the network, or in the end by itself.
  const std::uint64_t generation = end.generation;
  const std::int64_t delay_ns = options_of(link, side).delay_ns;
  const bool told = !link.broken && end.frozen_until_ns <= now_ns_;
  at(now_ns_ + (told ? delay_ns : 1'000 * kMillisecond + random(1'000 * kMillisecond)),
     [this, &link, side, generation] { notice(link, 1 - side, generation, "closed by the peer"); });
  if (link.ends[0].wanted && !link.ends[0].up) attempt_later(link, kFirstBackoff);
}

void FakeNetwork::notice(Link& link, int side, std::uint64_t generation,
                         const std::string& reason) {
  if (link.ends[side].generation == generation) end_down(link, side, reason, true);
}

void FakeNetwork::cut(Port one, Port other, const FakeCut& how) {
  Link& path = link(one, other);
  path.cut = true;
  path.how = how;
  path.broken = true;
  for (int side = 0; side < 2; ++side) {
    if (!path.ends[side].up) continue;
    // Even a silent loss is noticed at last, as by the keepalives of tcp.
    const std::int64_t delay_ns = how.silent ? 4'000 * kMillisecond + random(4'000 * kMillisecond)
                                             : random(how.longest_notice_ns);
    at(now_ns_ + delay_ns, [this, &path, side, generation = path.ends[side].generation] {
      notice(path, side, generation, "connection lost");
    });
  }
}

void FakeNetwork::heal(Port one, Port other) { link(one, other).cut = false; }

void FakeNetwork::freeze(Port from, Port to, std::int64_t duration_ns) {
  Link& path = link(from, to);
  End& end = path.ends[from.rank < to.rank ? 0 : 1];
  end.frozen_until_ns = std::max(end.frozen_until_ns, now_ns_ + duration_ns);
}

// ---- what travels ------------------------------------------------------------------------------

bool FakeNetwork::post(Link& link, int side, const Chunk& chunk) {
  End& end = link.ends[side];
  const FakeRailOptions& options = options_of(link, side);
  if (!end.up || static_cast<int>(end.in_flight.size()) >= options.queue_depth) return false;
  end.in_flight.push_back({chunk.bytes, now_ns_});
  end.in_flight_bytes += chunk.bytes;
  end.use.most_bytes = std::max(end.use.most_bytes, end.in_flight_bytes);
  if (chunk.bulk) ++end.use.bulk_chunks;
  if (chunk.held) {
    ++end.use.held_chunks;
    end.held.push_back(chunk);
  } else {
    hand_over(link, side);
    send(link, side, chunk);
  }
  return true;
}

/// What is held leaves, in the order in which it came.
void FakeNetwork::hand_over(Link& link, int side) {
  End& end = link.ends[side];
  if (end.held.empty()) return;
  ++end.use.batches;
  for (const Chunk& chunk : std::exchange(end.held, {})) send(link, side, chunk);
}

void FakeNetwork::send(Link& link, int side, const Chunk& chunk) {
  End& end = link.ends[side];
  const FakeRailOptions& options = options_of(link, side);
  FakeRail& sender = *rail(link.ports[side]);
  const auto duration_ns =
      options.startup_ns +
      static_cast<std::int64_t>(static_cast<double>(chunk.bytes) / options.bytes_per_second * 1e9);
  sender.sends_until_ns_ =
      std::max(sender.sends_until_ns_, now_ns_ - options.saved_up_ns) + duration_ns;
  // Time does not leap over the moment in which it has left.
  if (sender.sends_until_ns_ > now_ns_) at(sender.sends_until_ns_, [] {});
  end.last_arrival_ns =
      std::max(end.last_arrival_ns, std::max(sender.sends_until_ns_, now_ns_) + options.delay_ns +
                                        random(options.jitter_ns));
  if (options.startup_ns > 0) {
    FakeRail& receiver = *rail(link.ports[1 - side]);
    end.last_arrival_ns = std::max(end.last_arrival_ns, receiver.receives_until_ns_ + duration_ns);
    receiver.receives_until_ns_ = end.last_arrival_ns;
  }
  auto parcel = std::make_shared<Parcel>();
  parcel->chunk = chunk;
  parcel->generation = end.generation;
  parcel->bytes.assign(chunk.from, chunk.from + chunk.bytes);
  at(end.last_arrival_ns, [this, &link, side, parcel] { deliver(link, side, parcel); });
}

void FakeNetwork::deliver(Link& link, int side, const std::shared_ptr<Parcel>& parcel) {
  const End& from = link.ends[side];
  const End& to = link.ends[1 - side];
  if (!to.up || to.generation != parcel->generation) return;
  const bool sender_left = !from.up || from.generation != parcel->generation;
  if ((link.broken || sender_left) && !parcel->late) {
    if (!chance(link.how.late_chance)) {
      // A link keeps its order: nothing of this generation arrives behind a lost chunk.
      link.broken = true;
      return;
    }
    parcel->late = true;
    at(now_ns_ + random(link.how.latest_ns),
       [this, &link, side, parcel] { deliver(link, side, parcel); });
    return;
  }
  if (from.frozen_until_ns > now_ns_ && !parcel->late) {
    at(from.frozen_until_ns, [this, &link, side, parcel] { deliver(link, side, parcel); });
    return;
  }
  land(link, side, parcel);
}

void FakeNetwork::land(Link& link, int side, const std::shared_ptr<Parcel>& parcel) {
  const FakeRailOptions& options = options_of(link, 1 - side);
  FakeRail& receiver = *rail(link.ports[1 - side]);
  const Chunk& chunk = parcel->chunk;
  std::byte* target = receiver.target(chunk);
  if (target == nullptr) {
    end_down(link, 1 - side, "the peer wrote outside of the window", true);
    return;
  }
  // Usually the sender's memory as it is now: it must not change before the completion.
  const std::byte* from = parcel->late ? parcel->bytes.data() : chunk.from;
  FakeRail::Report report;
  report.peer = link.ports[side].rank;
  report.chunk = chunk;
  report.chunk.from = nullptr;
  report.kind = FakeRail::Report::Kind::Arrived;
  if (options.reads_payload) {
    report.kind = FakeRail::Report::Kind::Payload;
    report.bytes.assign(from, from + chunk.bytes);
  } else {
    std::memcpy(target, from, chunk.bytes);
  }
  // A late chunk may land without a word.
  const bool silent = parcel->late && chance(0.3);
  if (!silent) {
    if (chance(options.duplicate_chance)) receiver.reports_.push_back(report);
    report.is_held = options.holds_acknowledgements && !parcel->late;
    receiver.reports_.push_back(std::move(report));
  }
  if (parcel->late || options.holds_acknowledgements) return;
  acknowledge(link, side, parcel->generation);
}

void FakeNetwork::acknowledge(Link& link, int side, std::uint64_t generation) {
  const FakeRailOptions& options = options_of(link, 1 - side);
  const End& back = link.ends[1 - side];
  at(std::max(now_ns_ + options.delay_ns, back.frozen_until_ns), [this, &link, side, generation] {
    End& end = link.ends[side];
    if (!end.up || end.generation != generation || link.broken) return;
    if (link.ends[1 - side].frozen_until_ns > now_ns_) {
      acknowledge(link, side, generation);
      return;
    }
    FakeRail::Report report;
    report.kind = FakeRail::Report::Kind::Completed;
    report.peer = link.ports[1 - side].rank;
    rail(link.ports[side])->reports_.push_back(std::move(report));
  });
}

bool FakeNetwork::post_control(Link& link, int side, std::span<const std::byte> message) {
  const End& end = link.ends[side];
  if (!end.up || message.size() > kMaxControlBytes) return false;
  const FakeRailOptions& options = options_of(link, side);
  std::vector<std::byte> copy(message.begin(), message.end());
  at(now_ns_ + options.delay_ns, [this, &link, side, generation = end.generation, copy] {
    deliver_control(link, side, generation, copy);
  });
  return true;
}

void FakeNetwork::deliver_control(Link& link, int side, std::uint64_t generation,
                                  std::vector<std::byte> message) {
  const End& from = link.ends[side];
  const End& to = link.ends[1 - side];
  if (!to.up || to.generation != generation || link.broken) return;
  if (from.frozen_until_ns > now_ns_) {
    at(from.frozen_until_ns, [this, &link, side, generation, message] {
      deliver_control(link, side, generation, message);
    });
    return;
  }
  FakeRail::Report report;
  report.kind = FakeRail::Report::Kind::Control;
  report.peer = link.ports[side].rank;
  report.bytes = std::move(message);
  rail(link.ports[1 - side])->reports_.push_back(std::move(report));
}

}  // namespace allrail::transport
