// The fake against what its users rely on: the semantics of the real libraries.
#include "tests/fake_verbs/connected_ends.hpp"

namespace allrail::fake_verbs {
namespace {

TEST_F(FakeVerbs, ConnectsWithPrivateDataAsLongAsItsMessage) {
  request();
  EXPECT_EQ(b_->data, std::string("hello") + std::string(51, '\0'));
  rdma_conn_param param{};
  param.private_data = "welcome";
  param.private_data_len = 7;
  ASSERT_EQ(rdma_accept(b_->id, &param), 0);
  b_->expect_no_event();  // It is established when the connecting end has read the answer.
  a_->expect_event(RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(a_->data, std::string("welcome") + std::string(189, '\0'));
  b_->expect_event(RDMA_CM_EVENT_ESTABLISHED);
  EXPECT_EQ(ntohs(rdma_get_dst_port(a_->id)), port_of_b());
  EXPECT_EQ(b_->id->route.addr.dst_sin.sin_port, rdma_get_src_port(a_->id));
}

TEST_F(FakeVerbs, RefusesPrivateDataThatIsTooLong) {
  request();
  const std::string much(200, 'x');
  rdma_conn_param param{};
  param.private_data = much.data();
  param.private_data_len = 197;
  EXPECT_EQ(rdma_accept(b_->id, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_reject(b_->id, much.data(), 149), -1);
  EXPECT_EQ(rdma_reject(b_->id, "no", 2), 0);
  a_->expect_event(RDMA_CM_EVENT_REJECTED, 28);
  EXPECT_EQ(a_->data.substr(0, 3), std::string("no\0", 3));
  EXPECT_EQ(a_->id->qp->state, IBV_QPS_ERR);
  a_->close_id();
  a_->resolve("10.9.0.1", "10.9.1.1", port_of_b());
  a_->make_queue_pair();
  param.private_data_len = 57;
  EXPECT_EQ(rdma_connect(a_->id, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  param.private_data_len = 56;
  EXPECT_EQ(rdma_connect(a_->id, &param), 0);
}

TEST_F(FakeVerbs, WritesWithImmediate) {
  connect();
  EXPECT_EQ(b_->post_receive(9), 0);
  EXPECT_EQ(post_write({.wr_id = 5}), 0);
  const ibv_wc arrived = b_->next();
  EXPECT_EQ(arrived.status, IBV_WC_SUCCESS);
  EXPECT_EQ(arrived.wr_id, 9U);
  EXPECT_EQ(arrived.opcode, IBV_WC_RECV_RDMA_WITH_IMM);
  EXPECT_EQ(arrived.byte_len, 1000U);
  EXPECT_EQ(arrived.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(ntohl(arrived.imm_data), 77U);
  EXPECT_EQ(arrived.qp_num, b_->id->qp->qp_num);
  EXPECT_EQ(std::memcmp(a_->memory.data(), b_->memory.data(), 1000), 0);
  EXPECT_EQ(b_->memory[1000], std::byte{0});
  const ibv_wc sent = a_->next();
  EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
  EXPECT_EQ(sent.opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(sent.wr_id, 5U);
  EXPECT_EQ(receiver_not_ready(), 0);
}

TEST_F(FakeVerbs, CopiesInlineDataAtOnce) {
  connect();
  EXPECT_EQ(b_->post_receive(1, kBytes), 0);
  EXPECT_EQ(post_write({.bytes = 65, .flags = IBV_SEND_INLINE}), EINVAL);
  EXPECT_EQ(post_write({.bytes = 64, .opcode = IBV_WR_SEND, .flags = IBV_SEND_INLINE}), 0);
  const std::vector<std::byte> before = a_->memory;
  std::fill(a_->memory.begin(), a_->memory.end(), std::byte{0xee});
  EXPECT_EQ(b_->next().opcode, IBV_WC_RECV);
  EXPECT_EQ(std::memcmp(before.data(), b_->memory.data(), 64), 0);
}

TEST_F(FakeVerbs, FreesSlotsByTheNextSignalledCompletionThatIsPolled) {
  connect({.sends = 4});
  const WriteOptions silent = {.opcode = IBV_WR_RDMA_WRITE, .flags = 0};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(post_write(silent), 0);
  EXPECT_EQ(post_write({.wr_id = 4, .opcode = IBV_WR_RDMA_WRITE}), 0);
  EXPECT_EQ(post_write(silent), ENOMEM);
  advance(1000);
  EXPECT_EQ(post_write(silent), ENOMEM);
  EXPECT_EQ(a_->next().wr_id, 4U);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(post_write(silent), 0);
  EXPECT_EQ(post_write(silent), ENOMEM);
  for (int i = 0; i < 16; ++i) EXPECT_EQ(b_->post_receive(0), 0);
  EXPECT_EQ(b_->post_receive(0), ENOMEM);
}

TEST_F(FakeVerbs, PostsListsAndCounts) {
  connect();
  WriteList list(*this, 5);
  list.requests[1].send_flags = list.requests[4].send_flags = IBV_SEND_SIGNALED;
  list.requests[2].send_flags = IBV_SEND_INLINE;
  list.pieces[2].length = 64;
  EXPECT_EQ(list.post(), 0);
  EXPECT_EQ(posted_sends().calls, 1);
  EXPECT_EQ(posted_sends().requests, 5);
  EXPECT_EQ(posted_sends().signalled, 2);
  EXPECT_EQ(posted_sends().inlined, 1);
  expect_status(*a_, IBV_WC_SUCCESS, 2);
  expect_status(*a_, IBV_WC_SUCCESS, 5);
  EXPECT_EQ(std::memcmp(a_->memory.data(), b_->memory.data(), 264), 0);
  EXPECT_EQ(std::memcmp(a_->memory.data() + 300, b_->memory.data() + 300, 200), 0);
  EXPECT_EQ(b_->memory[264], std::byte{0});
  EXPECT_EQ(busy_queue_pairs(), 0);
}

TEST_F(FakeVerbs, FindsWritesOutOfBounds) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    a_.reset();
    b_.reset();
    reset(seed);
    connect();
    EXPECT_EQ(b_->post_receive(9), 0);
    EXPECT_EQ(post_write({.wr_id = 1, .bytes = 8, .opcode = IBV_WR_RDMA_WRITE}), 0);
    ibv_mr* small = ibv_reg_mr(b_->pd, b_->memory.data(), 100,
                               IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    std::swap(small, b_->mr);
    EXPECT_EQ(post_write({.wr_id = 2, .bytes = 101}), 0);
    EXPECT_EQ(post_write({.wr_id = 3, .bytes = 100}), 0);
    std::swap(small, b_->mr);
    expect_status(*a_, IBV_WC_SUCCESS, 1);
    expect_status(*a_, IBV_WC_REM_ACCESS_ERR, 2);
    expect_status(*a_, IBV_WC_WR_FLUSH_ERR, 3);
    expect_status(*b_, IBV_WC_WR_FLUSH_ERR, 9);
    EXPECT_EQ(b_->memory[8], std::byte{0});
    ibv_qp_attr attributes{};
    ibv_qp_init_attr made_with{};
    EXPECT_EQ(ibv_query_qp(b_->id->qp, &attributes, IBV_QP_STATE, &made_with), 0);
    EXPECT_EQ(attributes.qp_state, IBV_QPS_ERR);
    EXPECT_EQ(ibv_dereg_mr(small), 0);
  }
}

TEST_F(FakeVerbs, FindsAnRkeyInPlaceOfAnLkey) {
  connect();
  const std::uint32_t lkey = a_->mr->lkey;
  a_->mr->lkey = a_->mr->rkey;
  EXPECT_EQ(post_write({.wr_id = 1, .opcode = IBV_WR_RDMA_WRITE}), 0);
  a_->mr->lkey = lkey;
  expect_status(*a_, IBV_WC_LOC_PROT_ERR, 1);
}

TEST_F(FakeVerbs, CountsMessagesWithoutReceive) {
  connect();
  EXPECT_EQ(post_write({.wr_id = 1}), 0);
  expect_status(*a_, IBV_WC_RNR_RETRY_EXC_ERR, 1);
  EXPECT_EQ(receiver_not_ready(), 1);
}

TEST_F(FakeVerbs, FlushesEverythingOnError) {
  connect();
  for (std::uint64_t i = 1; i <= 3; ++i) EXPECT_EQ(b_->post_receive(i), 0);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  EXPECT_EQ(ibv_modify_qp(b_->id->qp, &attributes, IBV_QP_STATE), 0);
  for (std::uint64_t i = 1; i <= 3; ++i) expect_status(*b_, IBV_WC_WR_FLUSH_ERR, i);
  EXPECT_EQ(b_->post_receive(4), 0);
  expect_status(*b_, IBV_WC_WR_FLUSH_ERR, 4);
  EXPECT_EQ(post_write({.wr_id = 5}), 0);
  expect_status(*a_, IBV_WC_RETRY_EXC_ERR, 5);
  EXPECT_EQ(b_->memory[0], std::byte{0});
}

TEST_F(FakeVerbs, DisconnectsBothEnds) {
  connect();
  EXPECT_EQ(b_->post_receive(3), 0);
  EXPECT_EQ(rdma_disconnect(a_->id), 0);
  a_->expect_no_event();
  b_->expect_event(RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(rdma_disconnect(b_->id), 0);
  expect_status(*b_, IBV_WC_WR_FLUSH_ERR, 3);
  b_->expect_event(RDMA_CM_EVENT_TIMEWAIT_EXIT);
  a_->expect_event(RDMA_CM_EVENT_DISCONNECTED);
  a_->expect_event(RDMA_CM_EVENT_TIMEWAIT_EXIT);
}

TEST_F(FakeVerbs, DestroyingAnIdTellsTheOther) {
  connect();
  a_->close_id();
  b_->expect_event(RDMA_CM_EVENT_DISCONNECTED);
  EXPECT_EQ(rdma_disconnect(b_->id), 0);
}

TEST_F(FakeVerbs, AnswersWhereNobodyListens) {
  make_ends();
  const auto port = static_cast<std::uint16_t>(port_of_b() + 1);
  const auto attempt = [&](rdma_cm_event_type type, int status, const std::string& to) {
    a_->resolve("10.9.0.1", to, port);
    a_->make_queue_pair();
    rdma_conn_param param{};
    ASSERT_EQ(rdma_connect(a_->id, &param), 0);
    a_->expect_event(type, status);
    a_->close_id();
  };
  attempt(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, "10.9.1.1");
  attempt(RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT, "10.9.2.1");
  set_no_listener(NoListener::Rejected);
  attempt(RDMA_CM_EVENT_REJECTED, 8, "10.9.1.1");
}

}  // namespace
}  // namespace allrail::fake_verbs
