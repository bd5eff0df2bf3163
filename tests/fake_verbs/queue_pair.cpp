// Queue pairs: making, states, removal.
#include "tests/fake_verbs/world.hpp"

namespace allrail::fake_verbs {
namespace {

Qp* qp_of(ibv_qp* qp) {
  auto* ours = static_cast<Qp*>(qp);
  if (world().qps.holds(ours)) return ours;
  world().misuse("a queue pair is used that does not exist");
  return nullptr;
}

bool fits(const DeviceOptions& device, const ibv_qp_cap& cap) {
  const auto most = static_cast<std::uint32_t>(device.max_qp_wr);
  const auto most_sge = static_cast<std::uint32_t>(device.max_sge);
  return cap.max_send_wr <= most && cap.max_recv_wr <= most && cap.max_send_sge <= most_sge &&
         cap.max_recv_sge <= most_sge && cap.max_inline_data <= device.max_inline_bytes;
}

/// What the specification requires beside IBV_QP_STATE; -1 where the step does not exist.
int required_of_step(ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_RESET || to == IBV_QPS_ERR) return 0;
  if (to == IBV_QPS_INIT && (from == IBV_QPS_RESET || from == IBV_QPS_INIT))
    return from == IBV_QPS_INIT ? 0 : IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  if (to == IBV_QPS_RTR && from == IBV_QPS_INIT)
    return IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  if (to == IBV_QPS_RTS && from == IBV_QPS_RTR)
    return IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
           IBV_QP_MAX_QP_RD_ATOMIC;
  return to == IBV_QPS_RTS && from == IBV_QPS_RTS ? 0 : -1;
}

/// What it permits in addition.
int optional_of_step(ibv_qp_state from, ibv_qp_state to) {
  if (to == IBV_QPS_INIT) return IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  if (to == IBV_QPS_RTR) return IBV_QP_ALT_PATH | IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX;
  if (to != IBV_QPS_RTS) return 0;
  const int more = from == IBV_QPS_RTS ? 0 : IBV_QP_ALT_PATH;
  return more | IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER |
         IBV_QP_PATH_MIG_STATE;
}

bool is_way(const Device& device, const ibv_ah_attr& way) {
  if (way.port_num != 1) return false;
  // RoCE knows no way without GIDs.
  if (way.is_global == 0) {
    return device.options.infiniband && !device.options.needs_gids && way.dlid != 0;
  }
  return way.grh.hop_limit > 0 && has_gid(device, way.grh.sgid_index);
}

/// Whether the attributes have values that the kernel and the port take.
bool are_values(const Device& device, const ibv_qp_attr& wanted, int mask) {
  constexpr std::uint32_t kMost24Bits = 0xffffff;
  constexpr std::uint8_t kMostReads = 16;
  const auto within = [&](int bit, std::uint32_t value, std::uint32_t most) {
    return (mask & bit) == 0 || value <= most;
  };
  if ((mask & IBV_QP_PORT) != 0 && wanted.port_num != 1) return false;
  if ((mask & IBV_QP_AV) != 0 && !is_way(device, wanted.ah_attr)) return false;
  if ((mask & IBV_QP_PATH_MTU) != 0 && wanted.path_mtu < IBV_MTU_256) return false;
  return within(IBV_QP_PKEY_INDEX, wanted.pkey_index, 0) &&
         within(IBV_QP_PATH_MTU, wanted.path_mtu, device.options.mtu) &&
         within(IBV_QP_DEST_QPN, wanted.dest_qp_num, kMost24Bits) &&
         within(IBV_QP_RQ_PSN, wanted.rq_psn, kMost24Bits) &&
         within(IBV_QP_SQ_PSN, wanted.sq_psn, kMost24Bits) &&
         within(IBV_QP_TIMEOUT, wanted.timeout, 31) &&
         within(IBV_QP_RETRY_CNT, wanted.retry_cnt, 7) &&
         within(IBV_QP_RNR_RETRY, wanted.rnr_retry, 7) &&
         within(IBV_QP_MIN_RNR_TIMER, wanted.min_rnr_timer, 31) &&
         within(IBV_QP_MAX_QP_RD_ATOMIC, wanted.max_rd_atomic, kMostReads) &&
         within(IBV_QP_MAX_DEST_RD_ATOMIC, wanted.max_dest_rd_atomic, kMostReads);
}

void take_attributes(Qp& qp, const ibv_qp_attr& wanted, int mask) {
  ibv_qp_attr& has = qp.attributes;
  if (mask & IBV_QP_ACCESS_FLAGS) has.qp_access_flags = wanted.qp_access_flags;
  if (mask & IBV_QP_PKEY_INDEX) has.pkey_index = wanted.pkey_index;
  if (mask & IBV_QP_PORT) has.port_num = wanted.port_num;
  if (mask & IBV_QP_AV) has.ah_attr = wanted.ah_attr;
  if (mask & IBV_QP_PATH_MTU) has.path_mtu = wanted.path_mtu;
  if (mask & IBV_QP_DEST_QPN) has.dest_qp_num = wanted.dest_qp_num;
  if (mask & IBV_QP_RQ_PSN) has.rq_psn = wanted.rq_psn;
  if (mask & IBV_QP_SQ_PSN) has.sq_psn = wanted.sq_psn;
  if (mask & IBV_QP_TIMEOUT) has.timeout = wanted.timeout;
  if (mask & IBV_QP_RETRY_CNT) has.retry_cnt = wanted.retry_cnt;
  if (mask & IBV_QP_RNR_RETRY) has.rnr_retry = wanted.rnr_retry;
  if (mask & IBV_QP_MIN_RNR_TIMER) has.min_rnr_timer = wanted.min_rnr_timer;
  if (mask & IBV_QP_MAX_QP_RD_ATOMIC) has.max_rd_atomic = wanted.max_rd_atomic;
  if (mask & IBV_QP_MAX_DEST_RD_ATOMIC) has.max_dest_rd_atomic = wanted.max_dest_rd_atomic;
}

void forget_work(Qp& qp) {
  qp.sends.clear();
  qp.receives.clear();
  qp.landed = 0;
  qp.used_sends = qp.used_receives = 0;
  qp.silent_sends = 0;
}

void forget_completions(ibv_cq* queue, std::uint32_t number) {
  auto* cq = static_cast<Cq*>(queue);
  if (cq == nullptr) return;
  std::erase_if(cq->entries, [&](const Completion& one) { return one.wc.qp_num == number; });
}

}  // namespace

Device* Qp::device() const { return context_of(context)->owner; }

Qp* queue_pair_numbered(std::uint32_t number) {
  for (const auto& qp : world().qps)
    if (qp->qp_num == number && !qp->abandoned) return qp.get();
  return nullptr;
}

int create_queue_pair(Qp*& made, ibv_pd* domain, ibv_qp_init_attr& wanted) {
  World& all = world();
  if (!all.domains.holds(static_cast<Domain*>(domain))) {
    all.misuse("a queue pair is made in a protection domain that does not exist");
    return EINVAL;
  }
  if (wanted.qp_type != IBV_QPT_RC || wanted.srq != nullptr) return EOPNOTSUPP;
  if (wanted.send_cq == nullptr || wanted.recv_cq == nullptr) return EINVAL;
  for (const ibv_cq* cq : {wanted.send_cq, wanted.recv_cq}) {
    if (!all.cqs.holds(static_cast<const Cq*>(cq)))
      all.misuse("a queue pair is made with a completion queue that does not exist");
    if (cq->context != domain->context) return EINVAL;
  }
  const DeviceOptions& options = context_of(domain->context)->owner->options;
  if (!fits(options, wanted.cap)) return EINVAL;
  if (all.qps.alive() >= options.max_qp) return ENOMEM;
  auto qp = std::make_unique<Qp>();
  qp->context = domain->context;
  qp->qp_context = wanted.qp_context;
  qp->pd = domain;
  qp->send_cq = wanted.send_cq;
  qp->recv_cq = wanted.recv_cq;
  qp->qp_type = wanted.qp_type;
  qp->cap = wanted.cap;
  qp->signal_all = wanted.sq_sig_all != 0;
  all.next_qp_num += 1 + static_cast<std::uint32_t>(all.random(7));
  qp->qp_num = all.next_qp_num;
  qp->state = qp->now = IBV_QPS_RESET;
  made = &all.qps.add(std::move(qp));
  return 0;
}

void remove_queue_pair(Qp& qp) {
  World& all = world();
  if (qp.unacknowledged_asynchronous != 0)
    all.misuse("a queue pair is destroyed with unacknowledged events: this hangs");
  // Some providers take its completions out of the queues, others leave them there.
  if (all.coin()) {
    forget_completions(qp.send_cq, qp.qp_num);
    forget_completions(qp.recv_cq, qp.qp_num);
  }
  forget_asynchronous(*context_of(qp.context), &qp);
  all.qps.remove(&qp);
}

}  // namespace allrail::fake_verbs

using namespace allrail::fake_verbs;  // NOLINT(google-build-using-namespace): for what follows

extern "C" {

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* wanted) {
  const Call call("ibv_create_qp");
  if (call.error() != 0) return null_with(call.error());
  Qp* made = nullptr;
  const int error = create_queue_pair(made, pd, *wanted);
  return error != 0 ? null_with(error) : made;
}

int ibv_destroy_qp(ibv_qp* qp) {
  const Call call("ibv_destroy_qp");
  Qp* ours = qp_of(qp);
  if (ours == nullptr) return EINVAL;
  if (call.error() != 0) {
    ours->abandoned = true;
    return call.error();
  }
  for (const auto& id : world().ids)
    if (id->qp == qp) world().misuse("a queue pair of an id is destroyed by ibv_destroy_qp()");
  remove_queue_pair(*ours);
  settle();
  return 0;
}

int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* wanted, int mask) {
  const Call call("ibv_modify_qp");
  if (call.error() != 0) return call.error();
  Qp* ours = qp_of(qp);
  if (ours == nullptr) return EINVAL;
  const bool moves = (mask & IBV_QP_STATE) != 0;
  const ibv_qp_state to = moves ? wanted->qp_state : ours->now;
  const int required = moves ? required_of_step(ours->now, to) : 0;
  if (required < 0 || (mask & required) != required) return EINVAL;
  const int allowed = required | optional_of_step(ours->now, to) | IBV_QP_STATE;
  if ((mask & ~allowed) != 0 || !are_values(*ours->device(), *wanted, mask)) return EINVAL;
  take_attributes(*ours, *wanted, mask);
  if (moves && to == IBV_QPS_RTR) ours->moved_by_program = true;
  if (moves && to == IBV_QPS_RESET) forget_work(*ours);
  if (moves && to == IBV_QPS_ERR)
    to_error(*ours);
  else
    ours->now = to;
  ours->state = to;
  settle();
  return 0;
}

int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int, ibv_qp_init_attr* made_with) {
  const Call call("ibv_query_qp");
  if (call.error() != 0) return call.error();
  Qp* ours = qp_of(qp);
  if (ours == nullptr) return EINVAL;
  ours->state = ours->now;
  *attributes = ours->attributes;
  attributes->qp_state = attributes->cur_qp_state = ours->now;
  attributes->cap = ours->cap;
  *made_with = {};
  made_with->qp_context = qp->qp_context;
  made_with->send_cq = qp->send_cq;
  made_with->recv_cq = qp->recv_cq;
  made_with->cap = ours->cap;
  made_with->qp_type = qp->qp_type;
  made_with->sq_sig_all = ours->signal_all ? 1 : 0;
  return 0;
}

}  // extern "C"
