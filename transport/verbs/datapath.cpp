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
  if (link->sends.chunks() >= kQueueDepth || chunk.bytes > max_chunk_bytes_) return false;
  if (!may_use_receive(*link)) return false;
  SendQueue::Request write;
  write.kind = SendQueue::Kind::Chunk;
  write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  write.from = chunk.from;
  write.bytes = chunk.bytes;
  write.immediate = chunk.immediate;
  write.remote_address =
      (chunk.primary ? link->theirs.window_address : chunk.window.address) + chunk.offset;
  write.remote_key =
      chunk.primary ? link->theirs.window_key : static_cast<std::uint32_t>(chunk.window.key);
  write.is_inline = chunk.bytes <= link->inline_bytes;
  if (!write.is_inline) {
    const std::uint32_t* key = key_of(chunk.from, chunk.bytes);
    if (key == nullptr) {
      doom(*link,
           fmt::format("{} bytes were to be sent from memory that is not registered", chunk.bytes));
      return true;  // accepted: the link goes down at the next poll()
    }
    write.local_key = *key;
  }
  list(*link, write);
  ++link->receives_used;
  return true;
}

bool VerbsRail::post_control(int peer, std::span<const std::byte> message) {
  Link* link = find(peer);
  if (link == nullptr || !link->is_up() || message.size() > kMaxControlBytes) return false;
  if (link->free_control == 0 || !may_use_receive(*link)) return false;
  const auto buffer = static_cast<std::uint16_t>(std::countr_zero(link->free_control));
  link->free_control &= link->free_control - 1;
  // Nobody keeps the message until the list is posted, so that it needs a buffer even if inline.
  auto& bytes = link->buffers->sent[buffer];
  std::memcpy(bytes.data(), message.data(), message.size());
  SendQueue::Request send;
  send.kind = SendQueue::Kind::Control;
  send.opcode = IBV_WR_SEND;
  send.from = bytes.data();
  send.bytes = static_cast<std::uint32_t>(message.size());
  send.local_key = link->buffers_region->lkey;
  send.is_inline = send.bytes <= link->inline_bytes;
  send.control_buffer = buffer;
  list(*link, send);
  ++link->receives_used;
  return true;
}

void VerbsRail::list(Link& link, const SendQueue::Request& request) {
  if (!link.sends.has_list()) listed_links_.push_back(link.slot);
  link.sends.append(request, WorkId{WorkId::Kind::Send, link.slot, link.generation, 0});
}

void VerbsRail::submit() {
  if (listed_links_.empty()) return;
  std::erase_if(listed_links_, [this](std::uint16_t slot) { return post_list(links_.at(slot)); });
}

/// One doorbell. False if something stays in the list: that link is doomed, and what was refused is
/// dropped with it.
bool VerbsRail::post_list(Link& link) {
  if (!link.doom.empty()) return false;
  const int count = link.sends.listed();
  const int error_number = link.sends.post(*link.pair);
  if (error_number == 0) return true;
  doom(link, fmt::format("the device refused {} of {} work requests: {}", link.sends.listed(),
                         count, base::errno_text(error_number)));
  return !link.sends.has_list();
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
  if (link.sends.credits() >= kCreditDepth || !link.is_up()) return;
  post_credit(link);
}

/// Writes the count of receives posted again into the peer's credit word. The count only grows, so
/// it does not matter which of several writes the peer sees last.
void VerbsRail::post_credit(Link& link) {
  link.buffers->credit_to_peer = link.receives_again;
  SendQueue::Request write;
  write.kind = SendQueue::Kind::Credit;
  write.opcode = IBV_WR_RDMA_WRITE;
  write.from = &link.buffers->credit_to_peer;
  write.bytes = sizeof link.buffers->credit_to_peer;
  write.local_key = link.buffers_region->lkey;
  write.is_inline = write.bytes <= link.inline_bytes;
  write.remote_address = link.theirs.credit_address;
  write.remote_key = link.theirs.credit_key;
  list(link, write);
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
  // Credit words, and what somebody has left there.
  submit();
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
/// False: some did not end in time.
bool VerbsRail::drain(Link& link, std::int64_t limit_ns, RailEvents& events) {
  const auto deadline_ns = base::now_ns() + limit_ns;
  const CompletionQueueUse& use =
      completion_queues_[static_cast<std::size_t>(link.completion_queue)];
  std::size_t at = next_completion_;
  // What is there is taken in any case, also of a device that is gone: peers count it as delivered.
  int more = completions_per_queue_ / static_cast<int>(kCompletionBatch) + 1;
  while (more > 0) {
    for (; at < completions_.size(); ++at) {
      ibv_wc& completion = completions_[at];
      const WorkId id = WorkId::decode(completion.wr_id);
      if (id.link != link.slot || id.generation != (link.generation & 0xffffffU)) continue;
      if (id.kind == WorkId::Kind::Receive) {
        --link.receives_posted;
        if (completion.status == IBV_WC_SUCCESS) {
          report_receive(link, ibv_wc(completion), id.place, events);
        }
      }
      completions_[at].wr_id = WorkId{WorkId::Kind::Taken, link.slot, link.generation, 0}.encode();
    }
    if (link.receives_posted <= 0) return true;
    const std::size_t before = completions_.size();
    if (!take_completions(use)) break;
    if (base::now_ns() >= deadline_ns) more = completions_.size() > before ? more - 1 : 0;
  }
  if (link.receives_posted <= 0) return true;
  base::log_debug("rail {}, rank {}: {} receives did not end", name(), link.peer,
                  link.receives_posted);
  return false;
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
    const std::string reason =
        fmt::format("{}: {} (status {})",
                    id.kind == WorkId::Kind::Receive ? "its connection broke" : "a write failed",
                    ibv_wc_status_str(completion.status), static_cast<int>(completion.status));
    if (link.state != Link::State::Up) return connecting_failed(link, reason, events);
    return take_down(link, reason, events);
  }
  // The first data may overtake word that the connection is made.
  if (link.state == Link::State::Accepting && id.kind == WorkId::Kind::Receive) {
    go_up(link, events);
  }
  if (id.kind == WorkId::Kind::Receive) {
    complete_receive(link, completion, id.place, events);
  } else {
    complete_sends(link, id.place, events);
  }
}

void VerbsRail::complete_sends(Link& link, std::uint16_t place, RailEvents& events) {
  const SendQueue::Done done = link.sends.complete(place);
  link.free_control |= done.control_buffers;
  if (link.state == Link::State::Connecting) return path_proved(link, events);
  if (done.chunks > 0) events.chunks_completed(index(), link.peer, done.chunks);
  if (done.credits > 0) tell_credit(link);
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
