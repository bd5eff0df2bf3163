#include "tests/multiprocess/collectives/any_call.hpp"

#include <algorithm>

namespace probe {
namespace {

constexpr unsigned char kUntouched = 0x5a;
constexpr const char* kNames[] = {"allgather", "allgatherv", "gather",   "gatherv",   "scatter",
                                  "scatterv",  "broadcast",  "alltoall", "alltoallv", "barrier"};

}  // namespace

const char* any_name(AnyKind kind) { return kNames[static_cast<int>(kind)]; }

AnyKind any_kind(const std::string& name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == std::end(kNames)) throw WrongBytes("no collective is named " + name);
  return static_cast<AnyKind>(found - std::begin(kNames));
}

void AnyCall::Side::add(std::size_t bytes, int tag) {
  counts.push_back(bytes);
  tags.push_back(tag);
}

void AnyCall::Side::lay_out(bool displaced) {
  places.resize(counts.size());
  std::size_t end = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const std::size_t rank = displaced ? counts.size() - 1 - i : i;
    end += displaced ? 1 + rank % 5 : 0;
    places[rank] = end;
    end += counts[rank];
  }
  buffer.assign(end, kUntouched);
}

std::span<unsigned char> AnyCall::Side::block(std::size_t index) {
  return std::span(buffer).subspan(places[index], counts[index]);
}

AnyCall::AnyCall(const allrail::Communicator& communicator, const AnySpec& spec)
    : spec_(spec), me_(communicator.rank()), ranks_(communicator.size()) {
  const bool is_v = spec.kind == AnyKind::Allgatherv || spec.kind == AnyKind::Gatherv ||
                    spec.kind == AnyKind::Scatterv || spec.kind == AnyKind::Alltoallv;
  add_blocks(is_v);
  const bool displaced = is_v && spec.displaced;
  // One block of this rank alone is the whole buffer.
  sent_.lay_out(displaced && sent_.counts.size() > 1);
  received_.lay_out(displaced && received_.counts.size() > 1);
  if (!is_v || spec.kind == AnyKind::Alltoallv) return;
  Side all;
  for (int rank = 0; rank < ranks_; ++rank) {
    const bool scatters = spec.kind == AnyKind::Scatterv;
    all.add(scatters ? bytes_of(spec_.root, rank) : bytes_of(rank, spec_.root), rank);
  }
  all.lay_out(displaced && ranks_ > 1);
  counts_ = all.counts;
  places_ = all.places;
}

/// What `from` has for `to`: of some pairs nothing, but not of the first ones.
std::size_t AnyCall::bytes_of(int from, int to) const {
  switch (spec_.kind) {
    case AnyKind::Allgatherv:
    case AnyKind::Gatherv:
      return spec_.bytes * ((static_cast<std::size_t>(from) * 5 + 3) % 7) / 6;
    case AnyKind::Scatterv:
      return spec_.bytes * ((static_cast<std::size_t>(to) * 5 + 3) % 7) / 6;
    case AnyKind::Alltoallv:
      return spec_.bytes * ((static_cast<std::size_t>(from * 3 + to) * 5 + 3) % 7) / 6;
    default:
      return spec_.bytes;
  }
}

void AnyCall::add_blocks(bool is_v) {
  const bool is_root = me_ == spec_.root;
  const auto tag = [this](int from, int to) { return from * ranks_ + to; };
  const AnyKind plain = is_v ? static_cast<AnyKind>(static_cast<int>(spec_.kind) - 1) : spec_.kind;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (plain == AnyKind::Alltoall) {
      sent_.add(bytes_of(me_, rank), tag(me_, rank));
      received_.add(bytes_of(rank, me_), tag(rank, me_));
    }
    if (plain == AnyKind::Allgather) received_.add(bytes_of(rank, 0), tag(rank, 0));
    if (plain == AnyKind::Gather && is_root) received_.add(bytes_of(rank, me_), tag(rank, me_));
    if (plain == AnyKind::Scatter && is_root) sent_.add(bytes_of(me_, rank), tag(me_, rank));
  }
  if (plain == AnyKind::Allgather) sent_.add(bytes_of(me_, 0), tag(me_, 0));
  if (plain == AnyKind::Gather) sent_.add(bytes_of(me_, spec_.root), tag(me_, spec_.root));
  if (plain == AnyKind::Scatter) received_.add(bytes_of(spec_.root, me_), tag(spec_.root, me_));
  if (plain == AnyKind::Broadcast) received_.add(spec_.bytes, tag(spec_.root, 0));
}

void AnyCall::fill(std::uint64_t number) {
  number_ = number;
  std::ranges::fill(received_.buffer, kUntouched);
  for (std::size_t i = 0; i < sent_.counts.size(); ++i) {
    fill_pattern(sent_.block(i), sent_.tags[i], number);
  }
  // What is broadcast is sent from where others receive it.
  if (spec_.kind == AnyKind::Broadcast && me_ == spec_.root) {
    fill_pattern(received_.block(0), received_.tags[0], number);
  }
}

void AnyCall::check() const {
  std::vector<unsigned char> expected(received_.buffer.size(), kUntouched);
  for (std::size_t i = 0; i < received_.counts.size(); ++i) {
    fill_pattern(std::span(expected).subspan(received_.places[i], received_.counts[i]),
                 received_.tags[i], number_);
  }
  const auto wrong = std::ranges::mismatch(expected, received_.buffer).in1;
  if (wrong == expected.end()) return;
  throw WrongBytes("wrong byte at rank " + std::to_string(me_) + ", place " +
                   std::to_string(wrong - expected.begin()) + ", number " +
                   std::to_string(number_) + " of " + text());
}

void AnyCall::spoil() {
  if (spec_.kind == AnyKind::Broadcast) {
    spec_.root = ranks_;
  } else if (spec_.kind == AnyKind::Gather && me_ != spec_.root) {
    throw WrongBytes("what another rank than the root receives of a gather is not looked at");
  } else {
    received_.buffer.pop_back();
  }
}

std::string AnyCall::text() const {
  return std::string(any_name(spec_.kind)) + " of " + std::to_string(spec_.bytes) +
         " bytes, root " + std::to_string(spec_.root) + ", by '" + spec_.options.algorithm + "'" +
         (spec_.displaced ? ", displaced" : "");
}

allrail::Plan AnyCall::plan(allrail::Communicator& communicator) {
  auto& send = sent_.buffer;
  auto& receive = received_.buffer;
  const auto& o = spec_.options;
  switch (spec_.kind) {
    case AnyKind::Allgather:
      return communicator.plan_allgather(send, receive, o);
    case AnyKind::Allgatherv:
      if (!spec_.displaced) return communicator.plan_allgatherv(send, receive, counts_, o);
      return communicator.plan_allgatherv(send, receive, counts_, places_, o);
    case AnyKind::Gather:
      return communicator.plan_gather(send, receive, spec_.root, o);
    case AnyKind::Gatherv:
      if (!spec_.displaced) return communicator.plan_gatherv(send, receive, counts_, spec_.root, o);
      return communicator.plan_gatherv(send, receive, counts_, places_, spec_.root, o);
    case AnyKind::Scatter:
      return communicator.plan_scatter(send, receive, spec_.root, o);
    case AnyKind::Scatterv:
      if (!spec_.displaced)
        return communicator.plan_scatterv(send, receive, counts_, spec_.root, o);
      return communicator.plan_scatterv(send, receive, counts_, places_, spec_.root, o);
    case AnyKind::Broadcast:
      return communicator.plan_broadcast(receive, spec_.root, o);
    case AnyKind::Alltoall:
      return communicator.plan_alltoall(send, receive, o);
    case AnyKind::Barrier:
      return communicator.plan_barrier(o);
    default:
      if (!spec_.displaced) {
        return communicator.plan_alltoallv(send, receive, sent_.counts, received_.counts, o);
      }
      return communicator.plan_alltoallv(send, receive, sent_.counts, sent_.places,
                                         received_.counts, received_.places, o);
  }
}

void AnyCall::call(allrail::Communicator& communicator) {
  auto& send = sent_.buffer;
  auto& receive = received_.buffer;
  const auto& o = spec_.options;
  switch (spec_.kind) {
    case AnyKind::Allgather:
      return communicator.allgather(send, receive, o);
    case AnyKind::Allgatherv:
      if (!spec_.displaced) return communicator.allgatherv(send, receive, counts_, o);
      return communicator.allgatherv(send, receive, counts_, places_, o);
    case AnyKind::Gather:
      return communicator.gather(send, receive, spec_.root, o);
    case AnyKind::Gatherv:
      if (!spec_.displaced) return communicator.gatherv(send, receive, counts_, spec_.root, o);
      return communicator.gatherv(send, receive, counts_, places_, spec_.root, o);
    case AnyKind::Scatter:
      return communicator.scatter(send, receive, spec_.root, o);
    case AnyKind::Scatterv:
      if (!spec_.displaced) return communicator.scatterv(send, receive, counts_, spec_.root, o);
      return communicator.scatterv(send, receive, counts_, places_, spec_.root, o);
    case AnyKind::Broadcast:
      return communicator.broadcast(receive, spec_.root, o);
    case AnyKind::Alltoall:
      return communicator.alltoall(send, receive, o);
    case AnyKind::Barrier:
      return communicator.barrier(o.timeout);
    default:
      return communicator.alltoallv(send, receive, sent_.counts, sent_.places, received_.counts,
                                    received_.places, o);
  }
}

}  // namespace probe
