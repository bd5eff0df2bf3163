// Posting: what the provider checks before it rings the doorbell.
#include <cstring>
#include <type_traits>

#include "tests/fake_verbs/world.hpp"

namespace allrail::fake_verbs {
namespace {

bool is_known(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_WRITE_WITH_IMM ||
         opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}

Send copy_of(const Qp& qp, const ibv_send_wr& request) {
  Send send;
  send.wr_id = request.wr_id;
  send.opcode = request.opcode;
  send.flags = request.send_flags;
  send.immediate = request.imm_data;
  send.remote_address = request.wr.rdma.remote_addr;
  send.remote_key = request.wr.rdma.rkey;
  send.signalled = qp.signal_all || (request.send_flags & IBV_SEND_SIGNALED) != 0;
  for (int i = 0; i < request.num_sge; ++i) {
    const ibv_sge& piece = request.sg_list[i];
    send.bytes += piece.length;
    if ((request.send_flags & IBV_SEND_INLINE) == 0) {
      send.pieces.push_back(piece);
      continue;
    }
    const auto* from = reinterpret_cast<const std::byte*>(piece.addr);
    send.inlined.insert(send.inlined.end(), from, from + piece.length);
  }
  return send;
}

std::uint64_t bytes_of(const ibv_send_wr& request) {
  std::uint64_t bytes = 0;
  for (int i = 0; i < request.num_sge; ++i) bytes += request.sg_list[i].length;
  return bytes;
}

/// What the test wants for this number, or a zero.
template <typename Value>
Value wanted_for(const std::vector<std::pair<int, Value>>& wishes, int number) {
  for (const auto& [of, value] : wishes)
    if (of == number) return value;
  return {};
}

int add_send(Qp& qp, const ibv_send_wr& request) {
  World& all = world();
  if (const int error = wanted_for(all.send_refusals, ++all.given_sends)) return error;
  if (qp.now != IBV_QPS_RTS && qp.now != IBV_QPS_ERR) return EINVAL;
  if (qp.used_sends >= qp.cap.max_send_wr) return ENOMEM;
  if (!is_known(request.opcode)) return EINVAL;
  if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > qp.cap.max_send_sge)
    return EINVAL;
  const bool is_inline = (request.send_flags & IBV_SEND_INLINE) != 0;
  if (is_inline && bytes_of(request) > qp.cap.max_inline_data) return EINVAL;
  ++qp.used_sends;
  qp.sends.push_back(copy_of(qp, request));
  Send& send = qp.sends.back();
  send.wanted = wanted_for(all.send_failures, ++all.posted_sends.requests);
  all.posted_sends.signalled += send.signalled ? 1 : 0;
  all.posted_sends.inlined += is_inline ? 1 : 0;
  return 0;
}

int add_receive(Qp& qp, const ibv_recv_wr& request) {
  if (qp.now == IBV_QPS_RESET) return EINVAL;
  if (qp.used_receives >= qp.cap.max_recv_wr) return ENOMEM;
  if (request.num_sge < 0 || static_cast<std::uint32_t>(request.num_sge) > qp.cap.max_recv_sge)
    return EINVAL;
  ++qp.used_receives;
  Receive receive;
  receive.wr_id = request.wr_id;
  receive.pieces.assign(request.sg_list, request.sg_list + request.num_sge);
  qp.receives.push_back(std::move(receive));
  return 0;
}

/// Posts a list until the first request that cannot be; those before it stay posted.
template <typename Request, typename Add>
int post(const char* function, ibv_qp* qp, Request* request, Request** bad, Add add) {
  const Call call(function);
  if constexpr (std::is_same_v<Request, ibv_send_wr>) ++world().posted_sends.calls;
  auto* ours = static_cast<Qp*>(qp);
  int error = call.error();
  if (!world().qps.holds(ours)) {
    world().misuse(std::string(function) + " with a queue pair that does not exist");
    error = EINVAL;
  }
  while (error == 0 && request != nullptr) {
    error = add(*ours, *request);
    if (error == 0) request = request->next;
  }
  if (error != 0) *bad = request;
  settle();
  return error;
}

}  // namespace

int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr** bad) {
  return post("ibv_post_send", qp, request, bad, add_send);
}

int post_receive(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr** bad) {
  return post("ibv_post_recv", qp, request, bad, add_receive);
}

}  // namespace allrail::fake_verbs
