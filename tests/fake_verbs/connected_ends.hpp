// Two connected ends for the tests of the fake libraries.
#pragma once

#include <cerrno>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include "tests/fake_verbs/fake_verbs.hpp"

namespace allrail::fake_verbs {

inline constexpr std::size_t kBytes = 4096;

inline sockaddr_in address_of(const std::string& text, std::uint16_t port = 0) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  EXPECT_EQ(inet_pton(AF_INET, text.c_str(), &address.sin_addr), 1);
  return address;
}

inline sockaddr* generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

struct QueueSizes {
  std::uint32_t sends = 16, receives = 16;
  int entries = 64;
};

/// One end of a connection with all that it needs.
struct End {
  rdma_event_channel* events = rdma_create_event_channel();
  rdma_cm_id* listener = nullptr;
  rdma_cm_id* id = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<std::byte> memory = std::vector<std::byte>(kBytes);

  explicit End(const std::string& address) {
    fcntl(events->fd, F_SETFL, O_NONBLOCK);
    EXPECT_EQ(rdma_create_id(events, &listener, nullptr, RDMA_PS_TCP), 0);
    sockaddr_in where = address_of(address);
    EXPECT_EQ(rdma_bind_addr(listener, generic(where)), 0);
    EXPECT_EQ(rdma_listen(listener, 8), 0);
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;
  ~End() {
    close_id();
    if (pd != nullptr) {
      EXPECT_EQ(ibv_dereg_mr(mr), 0);
      EXPECT_EQ(ibv_destroy_cq(cq), 0);
      EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
      EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    }
    EXPECT_EQ(rdma_destroy_id(listener), 0);
    rdma_destroy_event_channel(events);
  }
  void close_id() {
    if (id == nullptr) return;
    if (id->qp != nullptr) rdma_destroy_qp(id);
    EXPECT_EQ(rdma_destroy_id(id), 0);
    id = nullptr;
  }
  void make_queue_pair(const QueueSizes& sizes = {}) {
    if (pd == nullptr) {
      pd = ibv_alloc_pd(id->verbs);
      channel = ibv_create_comp_channel(id->verbs);
      fcntl(channel->fd, F_SETFL, O_NONBLOCK);
      cq = ibv_create_cq(id->verbs, sizes.entries, this, channel, 0);
      const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
      mr = ibv_reg_mr(pd, memory.data(), memory.size(), access);
    }
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {.max_send_wr = sizes.sends,
                  .max_recv_wr = sizes.receives,
                  .max_send_sge = 2,
                  .max_recv_sge = 1,
                  .max_inline_data = 64};
    ASSERT_EQ(rdma_create_qp(id, pd, &wanted), 0) << std::strerror(errno);
  }
  /// The next event, which must be of this type; copied, and acknowledged.
  rdma_cm_event expect_event(rdma_cm_event_type type, int status = 0) {
    rdma_cm_event* event = nullptr;
    if (rdma_get_cm_event(events, &event) != 0) {
      ADD_FAILURE() << "no " << rdma_event_str(type);
      return {};
    }
    EXPECT_STREQ(rdma_event_str(event->event), rdma_event_str(type));
    EXPECT_EQ(event->status, status);
    if (event->param.conn.private_data != nullptr)
      data.assign(static_cast<const char*>(event->param.conn.private_data),
                  event->param.conn.private_data_len);
    const rdma_cm_event copy = *event;
    rdma_ack_cm_event(event);
    return copy;
  }
  void expect_no_event() {
    rdma_cm_event* event = nullptr;
    EXPECT_EQ(rdma_get_cm_event(events, &event), -1);
    EXPECT_EQ(errno, EAGAIN);
  }
  void resolve(const std::string& from, const std::string& to, std::uint16_t port) {
    ASSERT_EQ(rdma_create_id(events, &id, nullptr, RDMA_PS_TCP), 0);
    sockaddr_in here = address_of(from);
    sockaddr_in there = address_of(to, port);
    ASSERT_EQ(rdma_resolve_addr(id, generic(here), generic(there), 1000), 0);
    expect_event(RDMA_CM_EVENT_ADDR_RESOLVED);
    ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
    expect_event(RDMA_CM_EVENT_ROUTE_RESOLVED);
  }
  int post_receive(std::uint64_t wr_id, std::uint32_t bytes = 0) {
    ibv_sge piece = {reinterpret_cast<std::uintptr_t>(memory.data()), bytes, mr->lkey};
    ibv_recv_wr request{};
    request.wr_id = wr_id;
    request.sg_list = &piece;
    request.num_sge = bytes > 0 ? 1 : 0;
    ibv_recv_wr* bad = nullptr;
    return ibv_post_recv(id->qp, &request, &bad);
  }
  /// The next completion; fails the test if none comes.
  ibv_wc next() {
    ibv_wc completion{};
    for (int tries = 0; tries < 1000; ++tries)
      if (ibv_poll_cq(cq, 1, &completion) == 1) return completion;
    ADD_FAILURE() << "no completion comes";
    return completion;
  }
  std::string data;
};

struct WriteOptions {
  std::uint64_t wr_id = 1;
  std::uint32_t bytes = 1000;
  std::uint64_t offset = 0;  // at both ends
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  unsigned flags = IBV_SEND_SIGNALED;
};

class FakeVerbs : public testing::Test {
 protected:
  void SetUp() override {
    reset(7);
    set_misuse_handler([this](const std::string& text) { misuses_.push_back(text); });
  }
  void TearDown() override {
    a_.reset();
    b_.reset();
    EXPECT_EQ(live().text(), "nothing");
    EXPECT_EQ(misuses_, expected_misuses_);
    set_misuse_handler({});
  }

  void make_ends() {
    a_ = std::make_unique<End>("10.9.0.1");
    b_ = std::make_unique<End>("10.9.1.1");
  }
  std::uint16_t port_of_b() const { return ntohs(rdma_get_src_port(b_->listener)); }

  /// Up to the request at b's side.
  void request(const QueueSizes& sizes = {}) {
    if (a_ == nullptr) make_ends();
    a_->resolve("10.9.0.1", "10.9.1.1", port_of_b());
    a_->make_queue_pair(sizes);
    rdma_conn_param param{};
    param.private_data = "hello";
    param.private_data_len = 5;
    ASSERT_EQ(rdma_connect(a_->id, &param), 0);
    const rdma_cm_event event = b_->expect_event(RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(event.listen_id, b_->listener);
    b_->id = event.id;
    b_->make_queue_pair(sizes);
  }
  void connect(const QueueSizes& sizes = {}) {
    request(sizes);
    rdma_conn_param param{};
    param.private_data = "welcome";
    param.private_data_len = 7;
    ASSERT_EQ(rdma_accept(b_->id, &param), 0);
    a_->expect_event(RDMA_CM_EVENT_ESTABLISHED);
    b_->expect_event(RDMA_CM_EVENT_ESTABLISHED);
    std::iota(reinterpret_cast<unsigned char*>(a_->memory.data()),
              reinterpret_cast<unsigned char*>(a_->memory.data() + kBytes), 1);
  }
  int post_write(const WriteOptions& options) {
    ibv_sge piece = {reinterpret_cast<std::uintptr_t>(a_->memory.data()) + options.offset,
                     options.bytes, a_->mr->lkey};
    ibv_send_wr write{};
    write.wr_id = options.wr_id;
    write.sg_list = &piece;
    write.num_sge = 1;
    write.opcode = options.opcode;
    write.send_flags = options.flags;
    write.imm_data = htonl(77);
    write.wr.rdma.remote_addr =
        reinterpret_cast<std::uintptr_t>(b_->memory.data()) + options.offset;
    write.wr.rdma.rkey = b_->mr->rkey;
    ibv_send_wr* bad = nullptr;
    return ibv_post_send(a_->id->qp, &write, &bad);
  }
  /// Writes of 100 bytes each, one behind the other, with the numbers from 1 on; not signalled.
  struct WriteList {
    WriteList(const FakeVerbs& ends, std::size_t count)
        : requests(count), pieces(count), pair(ends.a_->id->qp) {
      for (std::size_t i = 0; i < count; ++i) {
        pieces[i] = {reinterpret_cast<std::uintptr_t>(ends.a_->memory.data()) + i * 100, 100,
                     ends.a_->mr->lkey};
        requests[i].wr_id = i + 1;
        requests[i].sg_list = &pieces[i];
        requests[i].num_sge = 1;
        requests[i].opcode = IBV_WR_RDMA_WRITE;
        requests[i].wr.rdma.remote_addr =
            reinterpret_cast<std::uintptr_t>(ends.b_->memory.data()) + i * 100;
        requests[i].wr.rdma.rkey = ends.b_->mr->rkey;
        requests[i].next = i + 1 < count ? &requests[i + 1] : nullptr;
      }
    }
    int post() { return ibv_post_send(pair, requests.data(), &bad); }
    std::vector<ibv_send_wr> requests;
    std::vector<ibv_sge> pieces;
    ibv_qp* pair;
    ibv_send_wr* bad = nullptr;
  };
  void expect_status(End& end, ibv_wc_status status, std::uint64_t wr_id) {
    const ibv_wc completion = end.next();
    EXPECT_STREQ(ibv_wc_status_str(completion.status), ibv_wc_status_str(status));
    EXPECT_EQ(completion.wr_id, wr_id);
    EXPECT_EQ(completion.qp_num, end.id->qp->qp_num);
  }

  std::unique_ptr<End> a_;
  std::unique_ptr<End> b_;
  std::vector<std::string> misuses_;
  std::vector<std::string> expected_misuses_;
};

}  // namespace allrail::fake_verbs
