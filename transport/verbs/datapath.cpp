// How chunks move over the links of a verbs rail. Nothing here allocates while links are well.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include <arpa/inet.h>
#include <unistd.h>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "lib/base/log.hpp"
#include "transport/verbs/verbs_rail_state.hpp"

namespace allrail::transport::verbs {
namespace {

/// Flushed receives come at once, or the device is gone.
constexpr std::int64_t kDrainLimitNs = 1'000'000'000;
/// How often poll() looks after everything that is not data.
constexpr std::int64_t kServiceIntervalNs = 1'000'000;
constexpr int kPollsPerClock = 8;

std::uint64_t address_of(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory); }

}  // namespace

bool VerbsRail::may_use_receive(const Link& link) const {
  const auto again =
      std::atomic_ref(link.buffers->credit_from_peer).load(std::memory_order_acquire);
  return link.receives_used - again < kReceiveDepth;
}

bool VerbsRail::post(int peer, const Chunk& chunk) {
  Link* link = find(peer);
  if (link == nullptr || !link->is_up()) return false;
  if (link->chunks_in_flight >= kQueueDepth || chunk.bytes > max_chunk_bytes_) return false;
  if (!may_use_receive(*link)) return false;
  ibv_sge piece{address_of(chunk.from), chunk.bytes, 0};
  ibv_send_wr work{};
  work.wr_id = WorkId{WorkId::Kind::Chunk, link->slot, link->generation, 0}.encode();
  work.sg_list = &piece;
  work.num_sge = chunk.bytes == 0 ? 0 : 1;
  work.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  work.send_flags = IBV_SEND_SIGNALED;
  work.imm_data = htonl(chunk.immediate);
  work.wr.rdma.remote_addr =
      (chunk.primary ? link->theirs.window_address : chunk.window.address) + chunk.offset;
  work.wr.rdma.rkey =
      chunk.primary ? link->theirs.window_key : static_cast<std::uint32_t>(chunk.window.key);
  if (chunk.bytes <= link->inline_bytes) {
    work.send_flags |= IBV_SEND_INLINE;
  } else if (const std::uint32_t* key = key_of(chunk.from, chunk.bytes)) {
    piece.lkey = *key;
  } else {
    doom(*link,
         fmt::format("{} bytes were to be sent from memory that is not registered", chunk.bytes));
    return true;  // accepted: the link goes down at the next poll()
  }
  ibv_send_wr* bad = nullptr;
  if (const int error_number = ibv_post_send(link->pair, &work, &bad)) {
    doom(*link, fmt::format("the device refused a write: {}", base::errno_text(error_number)));
    return true;
  }
  ++link->chunks_in_flight;
  ++link->receives_used;
  return true;
}

bool VerbsRail::post_control(int peer, std::span<const std::byte> message) {
  Link* link = find(peer);
  if (link == nullptr || !link->is_up() || message.size() > kMaxControlBytes) return false;
  if (link->free_control == 0 || !may_use_receive(*link)) return false;
  const auto buffer = static_cast<std::uint16_t>(std::countr_zero(link->free_control));
  auto& bytes = link->buffers->sent[buffer];
  std::memcpy(bytes.data(), message.data(), message.size());
  ibv_sge piece{address_of(bytes.data()), static_cast<std::uint32_t>(message.size()),
                link->buffers_region->lkey};
  ibv_send_wr work{};
  work.wr_id = WorkId{WorkId::Kind::Control, link->slot, link->generation, buffer}.encode();
  work.sg_list = &piece;
  work.num_sge = message.empty() ? 0 : 1;
  work.opcode = IBV_WR_SEND;
  work.send_flags = IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  if (const int error_number = ibv_post_send(link->pair, &work, &bad)) {
    doom(*link, fmt::format("the device refused a message: {}", base::errno_text(error_number)));
    return true;
  }
  link->free_control &= link->free_control - 1;
  ++link->receives_used;
  return true;
}

bool VerbsRail::post_receive(Link& link, std::uint16_t buffer) {
  ibv_sge piece{address_of(link.buffers->received[buffer].data()), kMaxControlBytes,
                link.buffers_region->lkey};
  ibv_recv_wr work{};
  work.wr_id = WorkId{WorkId::Kind::Receive, link.slot, link.generation, buffer}.encode();
  work.sg_list = &piece;
  work.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  const int error_number = ibv_post_recv(link.pair, &work, &bad);
  if (error_number == 0) {
    ++link.receives_posted;
    return true;
  }
  doom(link, fmt::format("the device refused a receive: {}", base::errno_text(error_number)));
  return false;
}

void VerbsRail::tell_credit(Link& link) {
  if (link.receives_again - link.receives_told < kCreditEvery) return;
  if (link.credits_in_flight >= kCreditDepth || !link.is_up()) return;
  post_credit(link);
}

/// Writes the count of receives posted again into the peer's credit word. The count only grows, so
/// it does not matter which of several writes the peer sees last.
void VerbsRail::post_credit(Link& link) {
  link.buffers->credit_to_peer = link.receives_again;
  ibv_sge piece{address_of(&link.buffers->credit_to_peer), sizeof(std::uint64_t),
                link.buffers_region->lkey};
  ibv_send_wr work{};
  work.wr_id = WorkId{WorkId::Kind::Credit, link.slot, link.generation, 0}.encode();
  work.sg_list = &piece;
  work.num_sge = 1;
  work.opcode = IBV_WR_RDMA_WRITE;
  work.send_flags = IBV_SEND_SIGNALED;
  if (link.inline_bytes >= sizeof(std::uint64_t)) work.send_flags |= IBV_SEND_INLINE;
  work.wr.rdma.remote_addr = link.theirs.credit_address;
  work.wr.rdma.rkey = link.theirs.credit_key;
  ibv_send_wr* bad = nullptr;
  if (const int error_number = ibv_post_send(link.pair, &work, &bad)) {
    doom(link, fmt::format("the device refused a write: {}", base::errno_text(error_number)));
    return;
  }
  ++link.credits_in_flight;
  link.receives_told = link.receives_again;
}

bool VerbsRail::poll(RailEvents& events) {
  bool any = false;
  if (doomed_links_ != 0) any |= report_doomed(events);
  any |= poll_queues(events);
  if (service_now_) {
    any |= service(events);
  } else if (--polls_until_clock_ <= 0) {
    polls_until_clock_ = kPollsPerClock;
    if (base::now_ns() - serviced_at_ns_ > kServiceIntervalNs) any |= service(events);
  }
  return any;
}

/// False: the queue is broken.
bool VerbsRail::take_completions(const CompletionQueueUse& use) {
  // Not into the vector: growing it would clear the memory of a whole batch at every poll.
  std::array<ibv_wc, kCompletionBatch> batch;
  const int count = ibv_poll_cq(use.queue.get(), static_cast<int>(batch.size()), batch.data());
  completions_.insert(completions_.end(), batch.begin(), batch.begin() + std::max(count, 0));
  return count >= 0;
}

bool VerbsRail::poll_queues(RailEvents& events) {
  bool broken = false;
  for (const CompletionQueueUse& use : completion_queues_) broken |= !take_completions(use);
  const bool any = !completions_.empty();
  // By index: a link that goes down on the way takes its own completions, and adds those of others
  // that it finds while it drains its queue.
  while (next_completion_ < completions_.size()) {
    const ibv_wc completion = completions_[next_completion_++];
    complete(completion, events);
  }
  completions_.clear();
  next_completion_ = 0;
  if (broken) take_all_down("its completion queue broke", events);
  return any || broken;
}

/// The queue pair is in the error state: every receive that is posted ends, those that were used
/// before as a success. They are reported here, since their sender may count them as delivered.
void VerbsRail::drain(Link& link, RailEvents& events) {
  const auto deadline_ns = base::now_ns() + kDrainLimitNs;
  const CompletionQueueUse& use =
      completion_queues_[static_cast<std::size_t>(link.completion_queue)];
  std::size_t at = next_completion_;
  while (link.receives_posted > 0 && base::now_ns() < deadline_ns) {
    for (; at < completions_.size(); ++at) {
      ibv_wc& completion = completions_[at];
      const WorkId id = WorkId::decode(completion.wr_id);
      if (id.link != link.slot || id.generation != (link.generation & 0xffffffU)) continue;
      if (id.kind == WorkId::Kind::Receive) {
        --link.receives_posted;
        if (completion.status == IBV_WC_SUCCESS) {
          report_receive(link, ibv_wc(completion), id.buffer, events);
        }
      }
      completions_[at].wr_id = WorkId{WorkId::Kind::Taken, link.slot, link.generation, 0}.encode();
    }
    if (!take_completions(use)) return;
  }
  if (link.receives_posted > 0) {
    base::log_debug("rail {}, rank {}: {} receives did not end", name(), link.peer,
                    link.receives_posted);
  }
}

void VerbsRail::complete(const ibv_wc& completion, RailEvents& events) {
  const WorkId id = WorkId::decode(completion.wr_id);
  if (id.link >= links_.size()) return;
  Link& link = links_.at(id.link);
  // Of a connection that is gone: its queue pair went before its completions were seen.
  if ((link.generation & 0xffffffU) != id.generation || !link.has_queue_pair()) return;
  if (id.kind == WorkId::Kind::Taken) return;
  if (id.kind == WorkId::Kind::Receive) --link.receives_posted;
  if (completion.status != IBV_WC_SUCCESS) {
    const std::string reason = fmt::format(
        "{}: {}", id.kind == WorkId::Kind::Receive ? "its connection broke" : "a write failed",
        ibv_wc_status_str(completion.status));
    if (link.state != Link::State::Up) return connecting_failed(link, reason, events);
    return take_down(link, reason, events);
  }
  // The first data may overtake word that the connection is made.
  if (link.state == Link::State::Accepting && id.kind == WorkId::Kind::Receive) {
    go_up(link, events);
  }
  switch (id.kind) {
    case WorkId::Kind::Chunk:
      --link.chunks_in_flight;
      events.chunks_completed(index(), link.peer, 1);
      break;
    case WorkId::Kind::Control:
      link.free_control |= std::uint64_t{1} << id.buffer;
      break;
    case WorkId::Kind::Credit:
      --link.credits_in_flight;
      if (link.state == Link::State::Connecting) return path_proved(link, events);
      tell_credit(link);
      break;
    case WorkId::Kind::Receive:
      complete_receive(link, completion, id.buffer, events);
      break;
    case WorkId::Kind::Taken:
      break;
  }
}

void VerbsRail::report_receive(Link& link, const ibv_wc& completion, std::uint16_t buffer,
                               RailEvents& events) {
  if (completion.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    events.chunk_arrived(index(), link.peer, ntohl(completion.imm_data), completion.byte_len);
  } else {
    const auto bytes = std::min<std::size_t>(completion.byte_len, kMaxControlBytes);
    events.control_arrived(index(), link.peer,
                           std::span(link.buffers->received[buffer]).first(bytes));
  }
}

void VerbsRail::complete_receive(Link& link, const ibv_wc& completion, std::uint16_t buffer,
                                 RailEvents& events) {
  report_receive(link, completion, buffer, events);
  if (!post_receive(link, buffer)) return;
  ++link.receives_again;
  tell_credit(link);
}

void VerbsRail::doom(Link& link, std::string reason) {
  if (!link.doom.empty()) return;
  link.doom = std::move(reason);
  ++doomed_links_;
}

bool VerbsRail::report_doomed(RailEvents& events) {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    Link& link = links_.at(i);
    if (!link.doom.empty()) take_down(link, std::string(link.doom), events);
  }
  return true;
}

}  // namespace allrail::transport::verbs
