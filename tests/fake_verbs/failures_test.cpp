// The scheduler of the fake, what it does on request to fail, and what it finds fault with.
#include <thread>

#include "tests/fake_verbs/connected_ends.hpp"

namespace allrail::fake_verbs {
namespace {

class FakeVerbsFailures : public FakeVerbs {};

TEST_F(FakeVerbsFailures, CompletionChannelWakesSleepers) {
  connect();
  EXPECT_EQ(b_->post_receive(1), 0);
  EXPECT_EQ(ibv_req_notify_cq(b_->cq, 0), 0);
  pollfd waiting = {.fd = b_->channel->fd, .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&waiting, 1, 0), 0);
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  EXPECT_EQ(ibv_get_cq_event(b_->channel, &cq, &context), -1);
  EXPECT_EQ(errno, EAGAIN);
  // Nobody polls: the armed queue is served as the post is made.
  EXPECT_EQ(post_write({}), 0);
  EXPECT_EQ(poll(&waiting, 1, 0), 1);
  EXPECT_EQ(ibv_get_cq_event(b_->channel, &cq, &context), 0);
  EXPECT_EQ(cq, b_->cq);
  EXPECT_EQ(context, b_.get());
  ibv_ack_cq_events(cq, 1);
  EXPECT_EQ(poll(&waiting, 1, 0), 0);
  EXPECT_EQ(b_->next().wr_id, 1U);
}

TEST_F(FakeVerbsFailures, QueuePairsOvertakeEachOtherButNotThemselves) {
  connect();
  int early = 0;
  for (std::uint64_t round = 0; round < 50; ++round) {
    for (std::uint64_t i = 0; i < 4; ++i) EXPECT_EQ(b_->post_receive(i), 0);
    for (std::uint64_t i = 0; i < 4; ++i)
      EXPECT_EQ(post_write({.wr_id = i, .bytes = 100, .offset = i * 100}), 0);
    for (std::uint64_t i = 0; i < 4; ++i) {
      expect_status(*b_, IBV_WC_SUCCESS, i);
      early += busy_queue_pairs();
    }
    for (std::uint64_t i = 0; i < 4; ++i) expect_status(*a_, IBV_WC_SUCCESS, i);
  }
  EXPECT_GT(early, 20);  // Something is still under way when the first completions are seen.
}

TEST_F(FakeVerbsFailures, OverflowOfACompletionQueueIsFatal) {
  expected_misuses_ = {"a completion queue of 2 entries overflows"};
  connect({.entries = 2});
  for (std::uint64_t i = 0; i < 3; ++i)
    EXPECT_EQ(post_write({.wr_id = i, .opcode = IBV_WR_RDMA_WRITE}), 0);
  advance(1000);
  EXPECT_EQ(completion_queue_overflows(), 1);
  fcntl(a_->id->verbs->async_fd, F_SETFL, O_NONBLOCK);
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(a_->id->verbs, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, a_->cq);
  ibv_ack_async_event(&event);
  EXPECT_EQ(ibv_get_async_event(a_->id->verbs, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST_F(FakeVerbsFailures, CutTellsThePortAndEndsSends) {
  connect();
  ibv_device** list = ibv_get_device_list(nullptr);
  EXPECT_STREQ(ibv_get_device_name(list[1]), "fake1");
  ibv_context* watcher = ibv_open_device(list[1]);
  ibv_free_device_list(list);
  fcntl(watcher->async_fd, F_SETFL, O_NONBLOCK);
  EXPECT_EQ(b_->post_receive(9), 0);
  cut("fake1");
  ibv_async_event event{};
  ASSERT_EQ(ibv_get_async_event(watcher, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ERR);
  EXPECT_EQ(event.element.port_num, 1);
  ibv_ack_async_event(&event);
  ibv_port_attr port{};
  EXPECT_EQ(ibv_query_port(watcher, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_DOWN);
  EXPECT_EQ(post_write({.wr_id = 1}), 0);
  EXPECT_EQ(post_write({.wr_id = 2}), 0);
  expect_status(*a_, IBV_WC_RETRY_EXC_ERR, 1);
  expect_status(*a_, IBV_WC_WR_FLUSH_ERR, 2);
  EXPECT_EQ(b_->memory[0], std::byte{0});
  EXPECT_EQ(rdma_disconnect(a_->id), 0);
  a_->expect_event(RDMA_CM_EVENT_DISCONNECTED);
  a_->expect_event(RDMA_CM_EVENT_TIMEWAIT_EXIT);
  b_->expect_no_event();
  restore("fake1");
  ASSERT_EQ(ibv_get_async_event(watcher, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_PORT_ACTIVE);
  ibv_ack_async_event(&event);
  EXPECT_EQ(ibv_close_device(watcher), 0);
}

TEST_F(FakeVerbsFailures, AShortBlackholeIsRiddenOut) {
  connect();
  EXPECT_EQ(b_->post_receive(9), 0);
  EXPECT_EQ(post_write({.wr_id = 1}), 0);
  blackhole("fake0");
  advance(2);
  restore("fake0");
  expect_status(*b_, IBV_WC_SUCCESS, 9);
  expect_status(*a_, IBV_WC_SUCCESS, 1);
}

TEST_F(FakeVerbsFailures, CutChoosesWhatHasLanded) {
  int landed = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    a_.reset();
    b_.reset();
    reset(seed);
    connect();
    for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(b_->post_receive(i), 0);
    for (std::uint64_t i = 0; i < 3; ++i) EXPECT_EQ(post_write({.wr_id = i}), 0);
    cut("fake0");
    expect_status(*a_, IBV_WC_RETRY_EXC_ERR, 0);
    expect_status(*a_, IBV_WC_WR_FLUSH_ERR, 1);
    expect_status(*a_, IBV_WC_WR_FLUSH_ERR, 2);
    advance(100);
    ibv_wc completions[3];
    const int arrived = ibv_poll_cq(b_->cq, 3, completions);
    ASSERT_GE(arrived, 0);
    EXPECT_TRUE(arrived == 0 || std::memcmp(a_->memory.data(), b_->memory.data(), 1000) == 0);
    landed += arrived;
  }
  EXPECT_GT(landed, 20);
  EXPECT_LT(landed, 100);
}

TEST_F(FakeVerbsFailures, FailsCallsInEachConvention) {
  make_ends();
  fail_call(1, EMFILE);
  errno = 0;
  EXPECT_EQ(ibv_get_device_list(nullptr), nullptr);
  EXPECT_EQ(errno, EMFILE);
  ibv_device** list = ibv_get_device_list(nullptr);
  fail_call(2, EIO);
  ibv_context* context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  ibv_device_attr attributes{};
  EXPECT_EQ(ibv_query_device(context, &attributes), EIO);
  EXPECT_EQ(ibv_query_device(context, &attributes), 0);
  fail_call_of("rdma_listen", 1, EADDRINUSE);
  ibv_gid gid{};
  EXPECT_EQ(ibv_query_gid(context, 1, 3, &gid), 0);
  EXPECT_EQ(gid.raw[12], 10);
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(a_->events, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in where = address_of("10.9.0.1");
  EXPECT_EQ(rdma_bind_addr(id, generic(where)), 0);
  EXPECT_EQ(rdma_listen(id, 1), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  EXPECT_EQ(rdma_listen(id, 1), 0);
  const int last = calls();
  EXPECT_EQ(name_of_call(last), "rdma_listen");
  EXPECT_EQ(name_of_call(last + 1), "");
  EXPECT_EQ(failed_calls().size(), 3U);
  EXPECT_EQ(failed_calls().back(), "rdma_listen (call " + std::to_string(last - 1) + ")");
  fail_call(1, EIO);
  EXPECT_EQ(rdma_destroy_id(id), -1);
  EXPECT_EQ(live().ids, 2);  // What could not be released is not counted.
  EXPECT_EQ(ibv_close_device(context), 0);
}

TEST_F(FakeVerbsFailures, FailsTheDataPath) {
  connect();
  fail_call_of("ibv_post_send", 1, ENOMEM);
  ibv_send_wr write{};
  write.opcode = IBV_WR_RDMA_WRITE;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(a_->id->qp, &write, &bad), ENOMEM);
  EXPECT_EQ(bad, &write);
  EXPECT_EQ(post_write({.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE}), 0);
  advance(1000);
  // An empty queue is no call that could fail.
  ibv_wc completion{};
  EXPECT_EQ(ibv_poll_cq(b_->cq, 1, &completion), 0);
  fail_call(1, EIO);
  const int before = calls();
  EXPECT_EQ(ibv_poll_cq(b_->cq, 1, &completion), 0);
  EXPECT_EQ(calls(), before);
  EXPECT_EQ(ibv_poll_cq(a_->cq, 1, &completion), -1);
  EXPECT_EQ(ibv_poll_cq(a_->cq, 1, &completion), 1);
}

TEST_F(FakeVerbsFailures, FailsCompletions) {
  int landed = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    a_.reset();
    b_.reset();
    reset(seed);
    connect();
    fail_completion(2, IBV_WC_RETRY_EXC_ERR);
    for (std::uint64_t i = 1; i <= 3; ++i)
      EXPECT_EQ(
          post_write({.wr_id = i, .bytes = 100, .offset = i * 100, .opcode = IBV_WR_RDMA_WRITE}),
          0);
    expect_status(*a_, IBV_WC_SUCCESS, 1);
    expect_status(*a_, IBV_WC_RETRY_EXC_ERR, 2);
    expect_status(*a_, IBV_WC_WR_FLUSH_ERR, 3);
    EXPECT_EQ(completions(), 2);
    if (std::memcmp(a_->memory.data() + 200, b_->memory.data() + 200, 100) == 0) ++landed;
  }
  EXPECT_GT(landed, 5);
  EXPECT_LT(landed, 38);
}

TEST_F(FakeVerbsFailures, FailsSendsThatAreNotSignalled) {
  int landed = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    a_.reset();
    b_.reset();
    reset(seed);
    connect();
    fail_send(2, IBV_WC_RETRY_EXC_ERR);
    WriteList list(*this, 4);
    list.requests[3].send_flags = IBV_SEND_SIGNALED;
    EXPECT_EQ(list.post(), 0);
    // The first has no completion; those that have failed have one, and those behind them.
    expect_status(*a_, IBV_WC_RETRY_EXC_ERR, 2);
    expect_status(*a_, IBV_WC_WR_FLUSH_ERR, 3);
    expect_status(*a_, IBV_WC_WR_FLUSH_ERR, 4);
    EXPECT_EQ(std::memcmp(a_->memory.data(), b_->memory.data(), 100), 0);
    if (std::memcmp(a_->memory.data() + 100, b_->memory.data() + 100, 100) == 0) ++landed;
  }
  EXPECT_GT(landed, 5);
  EXPECT_LT(landed, 38);
}

TEST_F(FakeVerbsFailures, RefusesOneOfAList) {
  connect();
  refuse_send(3, ENOMEM);
  WriteList list(*this, 4);
  for (ibv_send_wr& request : list.requests) request.send_flags = IBV_SEND_SIGNALED;
  EXPECT_EQ(list.post(), ENOMEM);
  EXPECT_EQ(list.bad, &list.requests[2]);
  expect_status(*a_, IBV_WC_SUCCESS, 1);
  expect_status(*a_, IBV_WC_SUCCESS, 2);
  EXPECT_EQ(advance(1000), 0) << "what stands behind the one that was refused is not posted";
  EXPECT_EQ(b_->memory[200], std::byte{0});
  EXPECT_EQ(post_write({.wr_id = 5, .opcode = IBV_WR_RDMA_WRITE}), 0);
  expect_status(*a_, IBV_WC_SUCCESS, 5);
}

TEST_F(FakeVerbsFailures, FailedReceiveReachesTheSender) {
  connect();
  EXPECT_EQ(b_->post_receive(9), 0);
  EXPECT_EQ(post_write({.wr_id = 1, .flags = 0}), 0);
  fail_completion(1, IBV_WC_LOC_PROT_ERR);
  expect_status(*b_, IBV_WC_LOC_PROT_ERR, 9);
  expect_status(*a_, IBV_WC_REM_OP_ERR, 1);
}

TEST_F(FakeVerbsFailures, ReportsWhatWouldHang) {
  expected_misuses_ = {"an id is destroyed with unacknowledged events: this hangs",
                       "an id is destroyed before its queue pair"};
  make_ends();
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(a_->events, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in there = address_of("10.9.1.1", 5);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(there), 100), 0);
  rdma_cm_event* event = nullptr;
  ASSERT_EQ(rdma_get_cm_event(a_->events, &event), 0);
  EXPECT_EQ(live().unacknowledged_events, 1);
  rdma_destroy_id(id);
  rdma_ack_cm_event(event);
  a_->resolve("10.9.0.1", "10.9.1.1", port_of_b());
  a_->make_queue_pair({});
  rdma_cm_id* early = std::exchange(a_->id, nullptr);
  ibv_qp* qp = early->qp;
  rdma_destroy_id(early);
  EXPECT_EQ(ibv_dealloc_pd(a_->pd), EBUSY);
  EXPECT_EQ(ibv_destroy_cq(a_->cq), EBUSY);
  EXPECT_EQ(ibv_destroy_comp_channel(a_->channel), EBUSY);
  EXPECT_EQ(live().text(),
            "1 protection domain, 1 memory region, 1 completion channel, "
            "1 completion queue, 1 queue pair, 2 event channels, 2 ids");
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST_F(FakeVerbsFailures, BlockedCallsWakeUp) {
  connect();
  fcntl(b_->channel->fd, F_SETFL, 0);
  EXPECT_EQ(b_->post_receive(1), 0);
  EXPECT_EQ(ibv_req_notify_cq(b_->cq, 0), 0);
  std::thread sleeper([this] {
    ibv_cq* cq = nullptr;
    void* context = nullptr;
    EXPECT_EQ(ibv_get_cq_event(b_->channel, &cq, &context), 0);
    ibv_ack_cq_events(cq, 1);
    EXPECT_EQ(b_->next().status, IBV_WC_SUCCESS);
  });
  EXPECT_EQ(post_write({}), 0);
  sleeper.join();
}

TEST_F(FakeVerbsFailures, TheSameSeedDoesTheSame) {
  std::vector<std::vector<std::uint64_t>> runs;
  for (int run = 0; run < 2; ++run) {
    a_.reset();
    b_.reset();
    reset(5);
    connect();
    std::vector<std::uint64_t>& seen = runs.emplace_back();
    for (int i = 0; i < 8; ++i) EXPECT_EQ(b_->post_receive(0), 0);
    for (std::uint64_t i = 0; i < 8; ++i) EXPECT_EQ(post_write({.wr_id = i}), 0);
    ibv_wc completion{};
    for (std::uint64_t polls = 0; polls < 40; ++polls)
      if (ibv_poll_cq(polls % 2 == 0 ? a_->cq : b_->cq, 1, &completion) == 1)
        seen.push_back(polls * 100 + completion.wr_id);
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_GT(runs[0].size(), 8U);
}

}  // namespace
}  // namespace allrail::fake_verbs
