// Queue pairs that the program moves through their states itself: what the fake takes, and which
// pairs reach each other.
#include <array>
#include <functional>

#include "tests/fake_verbs/connected_ends.hpp"

namespace allrail::fake_verbs {
namespace {

constexpr int kInit = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
constexpr int kReceive = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                         IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kSend = IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                      IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;

/// One end: a device of its own, a queue pair, memory.
struct HandEnd {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  ibv_qp* qp = nullptr;
  std::uint32_t packet = 0;
  std::array<std::byte, 64> memory{};

  explicit HandEnd(int device, std::uint32_t first_packet) : packet(first_packet) {
    ibv_device** list = ibv_get_device_list(nullptr);
    context = ibv_open_device(list[device]);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    cq = ibv_create_cq(context, 8, nullptr, nullptr, 0);
    mr = ibv_reg_mr(pd, memory.data(), memory.size(),
                    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap.max_send_wr = wanted.cap.max_recv_wr = wanted.cap.max_send_sge = 1;
    qp = ibv_create_qp(pd, &wanted);
  }
  HandEnd(const HandEnd&) = delete;
  HandEnd& operator=(const HandEnd&) = delete;
  ~HandEnd() {
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  ibv_gid gid(int index) const {
    ibv_gid found{};
    EXPECT_EQ(ibv_query_gid(context, 1, index, &found), 0);
    return found;
  }
  ibv_wc_status next_status() const {
    ibv_wc completion{};
    for (int tries = 0; tries < 1000; ++tries)
      if (ibv_poll_cq(cq, 1, &completion) == 1) return completion.status;
    return IBV_WC_GENERAL_ERR;
  }
};

using Change = std::function<void(ibv_qp_attr&)>;

class ByHand : public FakeVerbs {
 protected:
  void SetUp() override {
    FakeVerbs::SetUp();
    one_ = std::make_unique<HandEnd>(0, 100);
    other_ = std::make_unique<HandEnd>(1, 0xffffff);
  }
  void TearDown() override {
    one_.reset();
    other_.reset();
    FakeVerbs::TearDown();
  }

  static ibv_qp_attr attributes(const HandEnd& end, const HandEnd& to) {
    ibv_qp_attr all{};
    all.port_num = 1;
    all.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
    all.ah_attr.port_num = 1;
    all.ah_attr.is_global = 1;
    all.ah_attr.grh.dgid = to.gid(1);
    all.ah_attr.grh.sgid_index = 1;
    all.ah_attr.grh.hop_limit = 64;
    all.path_mtu = IBV_MTU_1024;
    all.dest_qp_num = to.qp->qp_num;
    all.rq_psn = to.packet;
    all.sq_psn = end.packet;
    return all;
  }

  /// Changed before the step to that state; the first errno that is not 0.
  static int move(const HandEnd& end, const HandEnd& to, ibv_qp_state when = IBV_QPS_UNKNOWN,
                  const Change& change = {}) {
    ibv_qp_attr all = attributes(end, to);
    for (const auto& [state, mask] :
         {std::pair{IBV_QPS_INIT, kInit}, {IBV_QPS_RTR, kReceive}, {IBV_QPS_RTS, kSend}}) {
      all.qp_state = state;
      if (state == when) change(all);
      if (const int error = ibv_modify_qp(end.qp, &all, mask)) return error;
    }
    return 0;
  }

  /// How the write of one byte ends at its sender.
  ibv_wc_status write_byte() {
    ibv_recv_wr receive{};
    ibv_recv_wr* bad_receive = nullptr;
    EXPECT_EQ(ibv_post_recv(other_->qp, &receive, &bad_receive), 0);
    one_->memory[0] = std::byte{7};
    ibv_sge piece{reinterpret_cast<std::uintptr_t>(one_->memory.data()), 1, one_->mr->lkey};
    ibv_send_wr write{};
    write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    write.sg_list = &piece;
    write.num_sge = 1;
    write.send_flags = IBV_SEND_SIGNALED;
    write.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(other_->memory.data());
    write.wr.rdma.rkey = other_->mr->rkey;
    ibv_send_wr* bad = nullptr;
    EXPECT_EQ(ibv_post_send(one_->qp, &write, &bad), 0);
    return one_->next_status();
  }

  std::unique_ptr<HandEnd> one_;
  std::unique_ptr<HandEnd> other_;
};

TEST_F(ByHand, PairsThatFitCarryWrites) {
  EXPECT_EQ(move(*one_, *other_), 0);
  EXPECT_EQ(move(*other_, *one_), 0);
  EXPECT_EQ(write_byte(), IBV_WC_SUCCESS);
  EXPECT_EQ(other_->memory[0], std::byte{7});
}

TEST_F(ByHand, EveryStepWantsItsAttributesAndNoOthers) {
  ibv_qp_attr all = attributes(*one_, *other_);
  for (const auto& [state, mask] :
       {std::pair{IBV_QPS_INIT, kInit}, {IBV_QPS_RTR, kReceive}, {IBV_QPS_RTS, kSend}}) {
    all.qp_state = state;
    for (int bit = 1; bit <= IBV_QP_DEST_QPN; bit <<= 1) {
      if ((mask & bit) == 0 || bit == IBV_QP_STATE) continue;
      EXPECT_EQ(ibv_modify_qp(one_->qp, &all, mask & ~bit), EINVAL) << state << " without " << bit;
    }
    EXPECT_EQ(ibv_modify_qp(one_->qp, &all, mask | IBV_QP_QKEY), EINVAL);
    EXPECT_EQ(ibv_modify_qp(one_->qp, &all, mask), 0);
  }
  all.qp_state = IBV_QPS_RTR;
  EXPECT_EQ(ibv_modify_qp(one_->qp, &all, kReceive), EINVAL) << "there is no way back";
}

TEST_F(ByHand, ValuesMustBePossible) {
  const std::vector<std::pair<ibv_qp_state, Change>> wrong = {
      {IBV_QPS_INIT, [](ibv_qp_attr& all) { all.port_num = 2; }},
      {IBV_QPS_INIT, [](ibv_qp_attr& all) { all.pkey_index = 1; }},
      {IBV_QPS_RTR, [](ibv_qp_attr& all) { all.ah_attr.port_num = 0; }},
      {IBV_QPS_RTR, [](ibv_qp_attr& all) { all.ah_attr.is_global = 0; }},
      {IBV_QPS_RTR, [](ibv_qp_attr& all) { all.ah_attr.grh.sgid_index = 4; }},
      {IBV_QPS_RTR, [](ibv_qp_attr& all) { all.ah_attr.grh.hop_limit = 0; }},
      {IBV_QPS_RTR, [](ibv_qp_attr& all) { all.path_mtu = IBV_MTU_2048; }},
      {IBV_QPS_RTR, [](ibv_qp_attr& all) { all.rq_psn = 1U << 24; }},
      {IBV_QPS_RTR, [](ibv_qp_attr& all) { all.min_rnr_timer = 32; }},
      {IBV_QPS_RTS, [](ibv_qp_attr& all) { all.timeout = 32; }},
      {IBV_QPS_RTS, [](ibv_qp_attr& all) { all.retry_cnt = 8; }},
      {IBV_QPS_RTS, [](ibv_qp_attr& all) { all.rnr_retry = 8; }},
      {IBV_QPS_RTS, [](ibv_qp_attr& all) { all.sq_psn = 1U << 24; }},
  };
  int index = 0;
  for (const auto& [state, change] : wrong) {
    HandEnd end(0, 1);
    EXPECT_EQ(move(end, *other_, state, change), EINVAL) << index;
    ++index;
  }
}

TEST_F(ByHand, PairsThatDoNotFitNeverReachEachOther) {
  const std::vector<std::pair<ibv_qp_state, Change>> wrong = {
      {IBV_QPS_RTS, [](ibv_qp_attr& all) { ++all.sq_psn; }},
      {IBV_QPS_RTR, [&](ibv_qp_attr& all) { all.ah_attr.grh.dgid = one_->gid(1); }},
      {IBV_QPS_RTR, [](ibv_qp_attr& all) { all.ah_attr.grh.sgid_index = 0; }},
      {IBV_QPS_RTR, [](ibv_qp_attr& all) { ++all.dest_qp_num; }},
  };
  for (const auto& [state, change] : wrong) {
    TearDown();
    SetUp();
    EXPECT_EQ(move(*one_, *other_, state, change), 0);
    EXPECT_EQ(move(*other_, *one_), 0);
    EXPECT_EQ(write_byte(), IBV_WC_RETRY_EXC_ERR);
    EXPECT_EQ(other_->memory[0], std::byte{0});
  }
}

TEST_F(ByHand, TheSmallerMtuHoldsForBoth) {
  EXPECT_EQ(move(*one_, *other_), 0);
  EXPECT_EQ(move(*other_, *one_, IBV_QPS_RTR, [](ibv_qp_attr& all) { all.path_mtu = IBV_MTU_512; }),
            0);
  EXPECT_EQ(write_byte(), IBV_WC_RETRY_EXC_ERR);
}

TEST_F(ByHand, WritesNeedTheRightToWrite) {
  EXPECT_EQ(move(*one_, *other_), 0);
  EXPECT_EQ(move(*other_, *one_, IBV_QPS_INIT, [](ibv_qp_attr& all) { all.qp_access_flags = 0; }),
            0);
  EXPECT_EQ(write_byte(), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(other_->memory[0], std::byte{0});
}

}  // namespace
}  // namespace allrail::fake_verbs
