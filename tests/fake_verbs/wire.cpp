// What moves the bytes: a scheduler that takes one small step of one queue pair at a time.
//
// A send first lands at the other end, perhaps in pieces, and is acknowledged some steps later;
// other queue pairs, and later sends of the same one, move in between.
#include <atomic>
#include <cstring>
#include <optional>

#include "tests/fake_verbs/world.hpp"

namespace allrail::fake_verbs {
namespace {

constexpr std::uint8_t kRetryForEver = 7;  // of rnr_retry

enum class Reach { Yes, NotYet, Never };

Qp* peer_of(const Qp& qp) { return queue_pair_numbered(qp.attributes.dest_qp_num); }

/// Whether packets of this queue pair come to the other one, and are those that it waits for.
bool fits(const Qp& qp, const Qp& peer) {
  // Ports lose what is larger than their MTU.
  if (qp.attributes.path_mtu > qp.device()->options.mtu ||
      qp.attributes.path_mtu > peer.device()->options.mtu)
    return false;
  if (!qp.moved_by_program) return true;
  return leads_to(*qp.device(), qp.attributes.ah_attr, *peer.device(), peer.attributes.ah_attr) &&
         qp.attributes.sq_psn == peer.attributes.rq_psn &&
         qp.attributes.path_mtu <= peer.attributes.path_mtu;
}

Reach reach(const Qp& qp, const Qp* peer) {
  if (peer == nullptr || !path_open(qp.device(), peer->device())) return Reach::Never;
  if (peer->now == IBV_QPS_RESET || peer->now == IBV_QPS_INIT) return Reach::NotYet;
  const bool answers =
      peer->now != IBV_QPS_ERR && peer->attributes.dest_qp_num == qp.qp_num && fits(qp, *peer);
  return answers ? Reach::Yes : Reach::Never;
}

bool takes_receive(const Send& send) { return send.opcode != IBV_WR_RDMA_WRITE; }
bool is_write(const Send& send) {
  return send.opcode == IBV_WR_RDMA_WRITE || send.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
bool has_immediate(const Send& send) {
  return send.opcode == IBV_WR_RDMA_WRITE_WITH_IMM || send.opcode == IBV_WR_SEND_WITH_IMM;
}

/// Whether the next send can set out: not if it waits for a receive to be posted.
bool can_land(const Qp& qp, const Qp& peer) {
  if (qp.sends.size() <= qp.landed) return false;
  const Send& send = qp.sends[qp.landed];
  const bool waits = takes_receive(send) && peer.receives.empty() && send.saw_no_receive;
  return !waits;
}

bool has_work(const Qp& qp) {
  if (qp.abandoned) return false;
  if (qp.now == IBV_QPS_ERR) return !qp.sends.empty() || !qp.receives.empty();
  if (qp.now != IBV_QPS_RTS || qp.sends.empty() || qp.device()->is_frozen) return false;
  const Qp* peer = peer_of(qp);
  switch (reach(qp, peer)) {
    case Reach::Never:
      return true;
    case Reach::NotYet:
      return false;
    case Reach::Yes:
      return qp.landed > 0 || can_land(qp, *peer);
  }
  return false;
}

bool is_armed(const ibv_cq* cq) {
  return cq != nullptr && static_cast<const Cq*>(cq)->armed != Armed::No;
}

/// Whether a program that may be asleep waits for what this queue pair does next.
bool is_awaited(const Qp& qp) {
  if (is_armed(qp.send_cq)) return true;
  if (qp.now == IBV_QPS_ERR) return is_armed(qp.recv_cq);
  const Qp* peer = peer_of(qp);
  return peer != nullptr && is_armed(peer->recv_cq);
}

Completion blank_completion(const Qp& qp, std::uint64_t wr_id, ibv_wc_status status) {
  Completion completion{};
  completion.wc.wr_id = wr_id;
  completion.wc.status = status;
  completion.wc.qp_num = qp.qp_num;
  // Of a failed one only wr_id, status, qp_num and vendor_err mean anything.
  completion.wc.opcode = world().coin() ? IBV_WC_SEND : IBV_WC_RECV;
  return completion;
}

bool is_of_remote_end(ibv_wc_status status) {
  return status == IBV_WC_REM_ACCESS_ERR || status == IBV_WC_REM_OP_ERR ||
         status == IBV_WC_REM_INV_REQ_ERR || status == IBV_WC_REM_ABORT_ERR;
}

void finish_front(Qp& qp, ibv_wc_status status) {
  const Send send = std::move(qp.sends.front());
  qp.sends.pop_front();
  if (status == IBV_WC_SUCCESS) status = send.wanted;
  if (qp.landed > 0) --qp.landed;
  if (!send.signalled && status == IBV_WC_SUCCESS) {
    ++qp.silent_sends;
    return;
  }
  Completion completion = blank_completion(qp, send.wr_id, status);
  if (status == IBV_WC_SUCCESS)
    completion.wc.opcode = is_write(send) ? IBV_WC_RDMA_WRITE : IBV_WC_SEND;
  completion.of_send = true;
  completion.frees = 1 + qp.silent_sends;
  qp.silent_sends = 0;
  if (qp.send_cq == nullptr) return;
  const ibv_wc_status told = complete(*static_cast<Cq*>(qp.send_cq), completion);
  if (told == IBV_WC_SUCCESS || qp.now == IBV_QPS_ERR) return;
  to_error(qp);
  Qp* peer = peer_of(qp);
  if (is_of_remote_end(told) && peer != nullptr) to_error(*peer);
}

/// The first send that has not landed fails; those before it have been acknowledged by then.
void fail_next(Qp& qp, ibv_wc_status status) {
  while (qp.landed > 0 && qp.now == IBV_QPS_RTS) finish_front(qp, IBV_WC_SUCCESS);
  if (qp.now == IBV_QPS_RTS) finish_front(qp, status);
}

void flush_receive(Qp& qp) {
  Completion completion = blank_completion(qp, qp.receives.front().wr_id, IBV_WC_WR_FLUSH_ERR);
  qp.receives.pop_front();
  completion.frees = 1;
  if (qp.recv_cq != nullptr) complete(*static_cast<Cq*>(qp.recv_cq), completion);
}

/// Copies, whole words at once: programs may poll on an aligned one.
void copy_bytes(std::byte* to, const std::byte* from, std::uint64_t bytes) {
  if (bytes != sizeof(std::uint64_t) || reinterpret_cast<std::uintptr_t>(to) % bytes != 0) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to)).store(word, std::memory_order_release);
}

/// Appends the next bytes of a send to `to`; false if a key of the sender does not allow it.
bool gather(const Qp& qp, Send& send, std::byte* to, std::uint64_t bytes) {
  if (!send.inlined.empty()) {
    copy_bytes(to, send.inlined.data() + send.moved, bytes);
    send.moved += bytes;
    return true;
  }
  std::uint64_t skip = send.moved;
  send.moved += bytes;
  for (const ibv_sge& piece : send.pieces) {
    if (bytes == 0) break;
    if (skip >= piece.length) {
      skip -= piece.length;
      continue;
    }
    const std::byte* from =
        memory_behind(qp.pd, piece.lkey, false, piece.addr, piece.length, /*access=*/0);
    if (from == nullptr) return false;
    const std::uint64_t part = std::min<std::uint64_t>(bytes, piece.length - skip);
    copy_bytes(to, from + skip, part);
    to += part;
    bytes -= part;
    skip = 0;
  }
  return true;
}

/// Spreads a message over the memory of a receive; the status at the receiver.
ibv_wc_status scatter(const Qp& peer, const Receive& receive, const std::vector<std::byte>& data) {
  std::size_t done = 0;
  for (const ibv_sge& piece : receive.pieces) {
    const std::size_t part = std::min<std::size_t>(piece.length, data.size() - done);
    if (part == 0) break;
    std::byte* to =
        memory_behind(peer.pd, piece.lkey, false, piece.addr, piece.length, IBV_ACCESS_LOCAL_WRITE);
    if (to == nullptr) return IBV_WC_LOC_PROT_ERR;
    std::memcpy(to, data.data() + done, part);
    done += part;
  }
  return done == data.size() ? IBV_WC_SUCCESS : IBV_WC_LOC_LEN_ERR;
}

/// Uses up a receive of the peer; the status that the sender sees.
ibv_wc_status deliver(Qp& peer, const Send& send, const std::vector<std::byte>& data) {
  const Receive receive = std::move(peer.receives.front());
  peer.receives.pop_front();
  const ibv_wc_status status = is_write(send) ? IBV_WC_SUCCESS : scatter(peer, receive, data);
  Completion completion = blank_completion(peer, receive.wr_id, status);
  if (status == IBV_WC_SUCCESS) {
    completion.wc.opcode = is_write(send) ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV;
    completion.wc.byte_len = static_cast<std::uint32_t>(send.bytes);
    if (has_immediate(send)) {
      completion.wc.imm_data = send.immediate;
      completion.wc.wc_flags = IBV_WC_WITH_IMM;
    }
  }
  completion.solicited = (send.flags & IBV_SEND_SOLICITED) != 0;
  completion.frees = 1;
  if (peer.recv_cq == nullptr) return IBV_WC_REM_OP_ERR;
  const ibv_wc_status told = complete(*static_cast<Cq*>(peer.recv_cq), completion);
  if (told == IBV_WC_SUCCESS) return IBV_WC_SUCCESS;
  to_error(peer);
  return told == IBV_WC_LOC_LEN_ERR ? IBV_WC_REM_INV_REQ_ERR : IBV_WC_REM_OP_ERR;
}

void tell_of_bad_access(Qp& peer) {
  ibv_async_event event{};
  event.element.qp = &peer;
  event.event_type = IBV_EVENT_QP_ACCESS_ERR;
  raise_asynchronous(*context_of(peer.context), event);
}

/// Where a write may pause: at cache lines, as devices do, so that an aligned word is never torn.
std::uint64_t piece_length(const std::byte* to, std::uint64_t left) {
  constexpr std::uint64_t kLine = 64;
  if (world().random(4) != 0) return left;
  const auto from = reinterpret_cast<std::uintptr_t>(to);
  const std::uint64_t end = (from + world().random(left)) / kLine * kLine;
  return end > from ? end - from : left;
}

/// The next piece of a write; the status that the sender sees.
ibv_wc_status write_piece(const Qp& qp, Qp& peer, Send& send) {
  const std::uint64_t left = send.bytes - send.moved;
  if (left == 0) return IBV_WC_SUCCESS;
  std::byte* to = memory_behind(peer.pd, send.remote_key, true, send.remote_address, send.bytes,
                                IBV_ACCESS_REMOTE_WRITE);
  if (to == nullptr || (peer.attributes.qp_access_flags & IBV_ACCESS_REMOTE_WRITE) == 0) {
    tell_of_bad_access(peer);
    return IBV_WC_REM_ACCESS_ERR;
  }
  to += send.moved;
  const std::uint64_t part = piece_length(to, left);
  return gather(qp, send, to, part) ? IBV_WC_SUCCESS : IBV_WC_LOC_PROT_ERR;
}

/// Empty: the send is not complete yet.
std::optional<ibv_wc_status> transfer(Qp& qp, Qp& peer, Send& send) {
  if (send.bytes > qp.device()->options.max_message_bytes) return IBV_WC_LOC_LEN_ERR;
  if (takes_receive(send) && peer.receives.empty()) {
    if (!send.saw_no_receive) ++world().receiver_not_ready;
    send.saw_no_receive = true;
    if (qp.attributes.rnr_retry == kRetryForEver) return std::nullopt;
    return IBV_WC_RNR_RETRY_EXC_ERR;
  }
  std::vector<std::byte> data;
  if (is_write(send)) {
    const ibv_wc_status status = write_piece(qp, peer, send);
    if (status != IBV_WC_SUCCESS) return status;
    if (send.moved < send.bytes) return std::nullopt;
  } else {
    data.resize(send.bytes);
    if (!gather(qp, send, data.data(), send.bytes)) return IBV_WC_LOC_PROT_ERR;
  }
  return takes_receive(send) ? deliver(peer, send, data) : IBV_WC_SUCCESS;
}

void land(Qp& qp, Qp& peer) {
  const std::optional<ibv_wc_status> status = transfer(qp, peer, qp.sends[qp.landed]);
  if (!status) return;
  if (*status == IBV_WC_SUCCESS && qp.now == IBV_QPS_RTS)
    ++qp.landed;
  else
    fail_next(qp, *status);
}

/// Whether the next successful completion is to fail.
bool failure_is_next() {
  const World& all = world();
  return std::any_of(all.completion_failures.begin(), all.completion_failures.end(),
                     [&](const auto& one) {
                       return one.first == all.completions + 1 && one.second != IBV_WC_SUCCESS;
                     });
}

bool is_to_fail(const Send& send) {
  return send.wanted != IBV_WC_SUCCESS || (send.signalled && failure_is_next());
}

void run(Qp& qp) {
  World& all = world();
  if (qp.now == IBV_QPS_ERR) {
    if (qp.receives.empty() || (!qp.sends.empty() && all.coin()))
      finish_front(qp, IBV_WC_WR_FLUSH_ERR);
    else
      flush_receive(qp);
    return;
  }
  Qp* peer = peer_of(qp);
  if (reach(qp, peer) == Reach::Never) {
    if (qp.patience == 0) qp.patience = 4 + static_cast<int>(all.random(28));
    if (--qp.patience == 0) finish_front(qp, IBV_WC_RETRY_EXC_ERR);
    return;
  }
  qp.patience = 0;
  const bool can_send = can_land(qp, *peer);
  if (!can_send || (qp.landed > 0 && all.coin())) return finish_front(qp, IBV_WC_SUCCESS);
  // A completion that fails may be one of a write that has never landed.
  if (qp.landed == 0 && is_to_fail(qp.sends.front()) && all.coin())
    return finish_front(qp, IBV_WC_SUCCESS);
  land(qp, *peer);
}

/// A queue pair that has something to do, by the seed.
Qp* choose(bool only_awaited) {
  Qp* chosen = nullptr;
  std::uint64_t seen = 0;
  for (const auto& qp : world().qps) {
    if (!has_work(*qp) || (only_awaited && !is_awaited(*qp))) continue;
    if (world().random(++seen) == 0) chosen = qp.get();
  }
  return chosen;
}

}  // namespace

bool path_open(const Device* from, const Device* to) {
  return from != nullptr && to != nullptr && from->reachable() && to->reachable();
}

bool step() {
  Qp* qp = choose(false);
  if (qp != nullptr) run(*qp);
  return qp != nullptr;
}

void settle() {
  while (Qp* qp = choose(true)) run(*qp);
}

void to_error(Qp& qp) {
  qp.now = IBV_QPS_ERR;
  qp.patience = 0;
}

void lose_acknowledgements(const Device& device) {
  for (const auto& qp : world().qps) {
    Qp* peer = peer_of(*qp);
    if (peer == nullptr || (qp->device() != &device && peer->device() != &device)) continue;
    if (qp->abandoned || qp->now != IBV_QPS_RTS) continue;
    for (auto count = world().random(qp->sends.size() - qp->landed + 1); count > 0; --count)
      if (reach(*qp, peer) == Reach::Yes && qp->now == IBV_QPS_RTS && can_land(*qp, *peer))
        land(*qp, *peer);
  }
}

int busy_queue_pairs() {
  const std::lock_guard<std::mutex> lock(world().mutex);
  return static_cast<int>(std::count_if(world().qps.begin(), world().qps.end(),
                                        [](const auto& qp) { return has_work(*qp); }));
}

}  // namespace allrail::fake_verbs
