#include "transport/fake/fake_rail.hpp"

#include <algorithm>
#include <cstring>

#include <fmt/core.h>

namespace allrail::transport {

FakeRail::FakeRail(FakeNetwork& network, int rank, int index)
    : network_(network), rank_(rank), index_(index), name_(fmt::format("fake{}", index)) {}

FakeRail::~FakeRail() {
  for (int peer = 0; peer < network_.ranks_; ++peer) {
    if (peer == rank_) continue;
    forget(peer);
    end_link(peer);
  }
  network_.rails_[static_cast<std::size_t>(rank_) * network_.options_.size() +
                  static_cast<std::size_t>(index_)] = nullptr;
}

const FakeRailOptions& FakeRail::options() const {
  return network_.options_[static_cast<std::size_t>(index_)];
}

std::vector<std::byte> FakeRail::address() const { return FakeNetwork::address_of(rank_, index_); }

FakeNetwork::Link& FakeRail::link_to(int peer) const {
  const auto partner = partners_.find(peer);
  return network_.link({rank_, index_},
                       {peer, partner != partners_.end() ? partner->second : index_});
}

RemoteKey FakeRail::register_window(std::span<std::byte> memory) {
  const RemoteKey key{windows_.size(), network_.engine_()};
  windows_[key.key] = memory;
  return key;
}

void FakeRail::unregister_window(const RemoteKey& key) { windows_.erase(key.key); }

void FakeRail::connect(int peer, std::span<const std::byte> address) {
  const bool was_wanted = !wanted_.insert(peer).second;
  if (rank_ > peer) {
    if (!was_wanted) network_.attempt_all({rank_, index_}, peer);
    return;
  }
  const int target = std::to_integer<int>(address[1]);
  if (was_wanted && (is_up(peer) || partners_[peer] == target)) return;
  end_to(peer).wanted = false;
  partners_[peer] = target;
  FakeNetwork::Link& link = link_to(peer);
  link.ends[0].wanted = true;
  network_.attempt_later(link, network_.random(1'000));
}

void FakeRail::forget(int peer) {
  wanted_.erase(peer);
  end_to(peer).wanted = false;
}

bool FakeRail::is_up(int peer) const { return end_to(peer).up; }

bool FakeRail::post(int peer, const Chunk& chunk) {
  const bool taken = network_.post(link_to(peer), side_to(peer), chunk);
  if (!taken) return false;
  unsubmitted_.insert(peer);
  acknowledge_held(peer);
  return true;
}

bool FakeRail::post_control(int peer, std::span<const std::byte> message) {
  const bool taken = network_.post_control(link_to(peer), side_to(peer), message);
  if (taken) unsubmitted_.insert(peer);
  return taken;
}

void FakeRail::submit() {
  for (const int peer : unsubmitted_) network_.hand_over(link_to(peer), side_to(peer));
  unsubmitted_.clear();
}

void FakeRail::flush_acknowledgements() {
  while (!held_.empty()) acknowledge_held(held_.begin()->first);
}

void FakeRail::acknowledge_held(int peer) {
  const auto held = held_.find(peer);
  if (held == held_.end()) return;
  FakeNetwork::Link& link = link_to(peer);
  const int sender = 1 - side_to(peer);
  for (; held->second > 0; --held->second) {
    network_.acknowledge(link, sender, link.ends[sender].generation);
  }
  held_.erase(held);
}

void FakeRail::close(int peer, RailEvents& events) {
  // What has landed is reported, since its sender may have been told so.
  for (const Report& report : reports_) {
    if (report.peer == peer && is_data(report)) deliver(report, events);
  }
  end_link(peer);
}

void FakeRail::end_link(int peer) {
  network_.end_down(link_to(peer), side_to(peer), "", false);
  purge(peer, true);
  unsubmitted_.erase(peer);
  held_.erase(peer);
}

bool FakeRail::is_data(const Report& report) {
  return report.kind == Report::Kind::Arrived || report.kind == Report::Kind::Payload;
}

void FakeRail::purge(int peer, bool all) {
  std::erase_if(reports_, [&](const Report& report) {
    const bool word =
        report.kind == Report::Kind::Completed || report.kind == Report::Kind::Control;
    return report.peer == peer && (all || word);
  });
}

std::byte* FakeRail::target(const Chunk& chunk) const {
  std::span<std::byte> window = primary_;
  if (!chunk.primary) {
    const auto found = windows_.find(chunk.window.key);
    if (found == windows_.end()) return nullptr;
    window = found->second;
  }
  const bool fits = chunk.offset <= window.size() && chunk.bytes <= window.size() - chunk.offset;
  return fits ? window.data() + chunk.offset : nullptr;
}

void FakeRail::deliver(const Report& report, RailEvents& events) {
  const int peer = report.peer;
  if (report.is_held) ++held_[peer];
  switch (report.kind) {
    case Report::Kind::Up:
      events.link_up(index_, peer, report.peer_rail);
      break;
    case Report::Kind::Answered:
      events.link_answered(index_, peer);
      break;
    case Report::Kind::Down:
      events.link_down(index_, peer, report.reason);
      break;
    case Report::Kind::Arrived:
      events.chunk_arrived(index_, peer, report.chunk.immediate, report.chunk.bytes);
      break;
    case Report::Kind::Payload:
      if (target(report.chunk) == nullptr) break;
      if (!events.chunk_wanted(index_, peer, report.chunk.immediate)) break;
      std::memcpy(target(report.chunk), report.bytes.data(), report.bytes.size());
      events.chunk_arrived(index_, peer, report.chunk.immediate, report.chunk.bytes);
      break;
    case Report::Kind::Completed:
      count_completed(end_to(peer));
      events.chunks_completed(index_, peer, 1);
      break;
    case Report::Kind::Control:
      events.control_arrived(index_, peer, report.bytes);
      break;
  }
}

void FakeRail::count_completed(FakeNetwork::End& end) const {
  if (end.in_flight.empty()) return;
  const FakeNetwork::End::Posted oldest = end.in_flight.front();
  end.in_flight.pop_front();
  end.in_flight_bytes -= oldest.bytes;
  end.use.longest_ns = std::max(end.use.longest_ns, network_.now_ns_ - oldest.time_ns);
}

std::int64_t FakeRail::unsent_bytes(int peer) const {
  if (!is_up(peer)) return -1;
  // All peers share what this rail sends in a time.
  const std::int64_t left_ns = std::max<std::int64_t>(sends_until_ns_ - network_.now_ns(), 0);
  return static_cast<std::int64_t>(static_cast<double>(left_ns) / 1e9 * options().bytes_per_second);
}

/// What others have sent stays where it is.
bool FakeRail::poll_peer(RailEvents& events, int peer) {
  submit();
  std::deque<Report> of_peer;
  std::deque<Report> others;
  for (Report& report : reports_)
    (report.peer == peer ? of_peer : others).push_back(std::move(report));
  reports_ = std::move(others);
  for (const Report& report : of_peer) deliver(report, events);
  return !of_peer.empty();
}

bool FakeRail::poll(RailEvents& events) {
  submit();
  // Only what is here now: a rail does not starve the others.
  std::size_t count = reports_.size();
  const bool any = count > 0;
  for (; count > 0 && !reports_.empty(); --count) {
    const Report report = std::move(reports_.front());
    reports_.pop_front();
    deliver(report, events);
  }
  return any;
}

}  // namespace allrail::transport
