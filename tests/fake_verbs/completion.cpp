// Completion channels and completion queues.
#include "tests/fake_verbs/world.hpp"

namespace allrail::fake_verbs {
namespace {

/// What the test wants this completion to be.
ibv_wc_status status_wanted(ibv_wc_status status) {
  World& all = world();
  if (status != IBV_WC_SUCCESS) return status;
  ++all.completions;
  for (const auto& [number, wanted] : all.completion_failures)
    if (number == all.completions) return wanted;
  return status;
}

void overflow(Cq& cq) {
  World& all = world();
  ++all.overflows;
  cq.overflowed = true;
  ibv_async_event event{};
  event.element.cq = &cq;
  event.event_type = IBV_EVENT_CQ_ERR;
  raise_asynchronous(*context_of(cq.context), event);
  all.misuse("a completion queue of " + std::to_string(cq.cqe) + " entries overflows");
  for (const auto& qp : all.qps)
    if (qp->send_cq == &cq || qp->recv_cq == &cq) to_error(*qp);
}

void ring_channel(Cq& cq) {
  cq.armed = Armed::No;
  auto* channel = static_cast<CompletionChannel*>(cq.channel);
  if (channel == nullptr) return;
  channel->events.push_back(&cq);
  channel->bell.ring();
}

Cq* cq_of(ibv_cq* cq) {
  auto* ours = static_cast<Cq*>(cq);
  if (world().cqs.holds(ours)) return ours;
  world().misuse("a completion queue is used that does not exist");
  return nullptr;
}

void give_back_slots(const Completion& completion) {
  Qp* qp = queue_pair_numbered(completion.wc.qp_num);
  if (qp == nullptr) return;
  (completion.of_send ? qp->used_sends : qp->used_receives) -=
      static_cast<std::uint32_t>(completion.frees);
}

/// Takes the events of a queue that goes out of its channel.
void forget_events(Cq& cq) {
  auto* channel = static_cast<CompletionChannel*>(cq.channel);
  if (channel == nullptr) return;
  for (auto count = std::erase(channel->events, &cq); count > 0; --count) channel->bell.take();
}

}  // namespace

ibv_wc_status complete(Cq& cq, Completion completion) {
  if (cq.overflowed || cq.abandoned) return completion.wc.status;
  if (cq.entries.size() >= static_cast<std::size_t>(cq.cqe)) {
    overflow(cq);
    return completion.wc.status;
  }
  completion.wc.status = status_wanted(completion.wc.status);
  if (completion.wc.status != IBV_WC_SUCCESS) completion.wc.vendor_err = 0xfa;
  cq.entries.push_back(completion);
  const bool urgent = completion.solicited || completion.wc.status != IBV_WC_SUCCESS;
  if (cq.armed == Armed::Any || (cq.armed == Armed::Solicited && urgent)) ring_channel(cq);
  return completion.wc.status;
}

int poll_completions(ibv_cq* cq, int count, ibv_wc* completions) {
  Call call;
  Cq* ours = cq_of(cq);
  if (ours == nullptr) return -1;
  // Some steps, so that several things are under way between any two polls.
  for (auto steps = world().random(8); steps > 0 && step(); --steps) continue;
  settle();
  if (ours->entries.empty() || count <= 0) return 0;
  call.count("ibv_poll_cq");
  if (call.error() != 0) return minus_one(call.error());
  int got = 0;
  while (got < count && !ours->entries.empty()) {
    const Completion completion = ours->entries.front();
    ours->entries.pop_front();
    give_back_slots(completion);
    completions[got++] = completion.wc;
  }
  return got;
}

int request_notification(ibv_cq* cq, int solicited_only) {
  const Call call("ibv_req_notify_cq");
  if (call.error() != 0) return call.error();
  Cq* ours = cq_of(cq);
  if (ours == nullptr) return EINVAL;
  if (solicited_only == 0) ours->armed = Armed::Any;
  if (ours->armed == Armed::No) ours->armed = Armed::Solicited;
  settle();
  return 0;
}

}  // namespace allrail::fake_verbs

using namespace allrail::fake_verbs;  // NOLINT(google-build-using-namespace): for what follows

extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  const Call call("ibv_create_comp_channel");
  if (call.error() != 0) return null_with(call.error());
  if (context_of(context) == nullptr) return null_with(EINVAL);
  auto channel = std::make_unique<CompletionChannel>();
  channel->context = context;
  channel->fd = channel->bell.descriptor();
  return &world().channels.add(std::move(channel));
}

int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  const Call call("ibv_destroy_comp_channel");
  World& all = world();
  auto* ours = static_cast<CompletionChannel*>(channel);
  if (!all.channels.holds(ours)) {
    all.misuse("a completion channel is destroyed that does not exist");
    return EINVAL;
  }
  if (call.error() != 0) {
    ours->abandoned = true;
    return call.error();
  }
  for (const auto& cq : all.cqs) {
    if (cq->channel != channel) continue;
    if (!cq->abandoned) return EBUSY;
    cq->channel = nullptr;
  }
  all.channels.remove(ours);
  return 0;
}

ibv_cq* ibv_create_cq(ibv_context* context, int entries, void* user_context,
                      ibv_comp_channel* channel, int vector) {
  const Call call("ibv_create_cq");
  if (call.error() != 0) return null_with(call.error());
  const Context* ours = context_of(context);
  if (ours == nullptr || entries < 1 || entries > ours->owner->options.max_cqe || vector < 0 ||
      vector >= context->num_comp_vectors)
    return null_with(EINVAL);
  if (channel != nullptr && channel->context != context) return null_with(EINVAL);
  auto cq = std::make_unique<Cq>();
  cq->context = context;
  cq->channel = channel;
  cq->cq_context = user_context;
  cq->cqe = entries;  // Real ones often give more; a test wants to see the first that is too many.
  return &world().cqs.add(std::move(cq));
}

int ibv_destroy_cq(ibv_cq* cq) {
  const Call call("ibv_destroy_cq");
  World& all = world();
  Cq* ours = cq_of(cq);
  if (ours == nullptr) return EINVAL;
  if (call.error() != 0) {
    ours->abandoned = true;
    return call.error();
  }
  for (const auto& qp : all.qps)
    if (!qp->abandoned && (qp->send_cq == cq || qp->recv_cq == cq)) return EBUSY;
  if (ours->unacknowledged != 0 || ours->unacknowledged_asynchronous != 0)
    all.misuse("a completion queue is destroyed with unacknowledged events: this hangs");
  for (const auto& qp : all.qps) {
    if (qp->send_cq == cq) qp->send_cq = nullptr;
    if (qp->recv_cq == cq) qp->recv_cq = nullptr;
  }
  forget_events(*ours);
  forget_asynchronous(*context_of(cq->context), ours);
  all.cqs.remove(ours);
  return 0;
}

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** user_context) {
  Call call;
  auto* ours = static_cast<CompletionChannel*>(channel);
  if (!world().channels.holds(ours)) {
    world().misuse("a completion channel is used that does not exist");
    return minus_one(EINVAL);
  }
  while (ours->events.empty()) {
    if (ours->bell.nonblocking()) return minus_one(EAGAIN);
    call.wait_for(ours->bell);
  }
  call.count("ibv_get_cq_event");
  if (call.error() != 0) return minus_one(call.error());
  Cq* ready = ours->events.front();
  ours->events.pop_front();
  ours->bell.take();
  ++ready->unacknowledged;
  *cq = ready;
  *user_context = ready->cq_context;
  return 0;
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  const Call call;
  Cq* ours = cq_of(cq);
  if (ours == nullptr) return;
  if (count > ours->unacknowledged)
    world().misuse("more events of a completion queue are acknowledged than were got");
  ours->unacknowledged -= std::min(count, ours->unacknowledged);
}

}  // extern "C"
