#include "transport/verbs/send_queue.hpp"

#include <arpa/inet.h>

namespace allrail::transport::verbs {

void SendQueue::append(const Request& request, WorkId id) {
  Entry& added = entry(end_);
  id.place = place_of(end_);
  added.kind = request.kind;
  added.control_buffer = request.control_buffer;
  added.piece = {reinterpret_cast<std::uintptr_t>(request.from), request.bytes, request.local_key};
  added.work = {};
  added.work.wr_id = id.encode();
  added.work.sg_list = &added.piece;
  added.work.num_sge = request.bytes == 0 ? 0 : 1;
  added.work.opcode = request.opcode;
  added.work.imm_data = htonl(request.immediate);
  added.work.wr.rdma.remote_addr = request.remote_address;
  added.work.wr.rdma.rkey = request.remote_key;
  if (request.is_inline) added.work.send_flags |= IBV_SEND_INLINE;
  ++silent_sends_;
  silent_bytes_ += request.bytes;
  if (silent_sends_ >= kSendsPerSignal || silent_bytes_ >= kBytesPerSignal) {
    added.work.send_flags |= IBV_SEND_SIGNALED;
    silent_sends_ = 0;
    silent_bytes_ = 0;
  }
  if (has_list()) entry(end_ - 1).work.next = &added.work;
  ++end_;
  chunks_ += request.kind == Kind::Chunk ? 1 : 0;
  credits_ += request.kind == Kind::Credit ? 1 : 0;
}

int SendQueue::post(ibv_qp& pair) {
  // Whatever comes next comes later: nobody may wait for it to hear of these.
  entry(end_ - 1).work.send_flags |= IBV_SEND_SIGNALED;
  silent_sends_ = 0;
  silent_bytes_ = 0;
  ibv_send_wr* bad = &entry(posted_).work;
  const int error_number = ibv_post_send(&pair, &entry(posted_).work, &bad);
  // What stands before the one that was refused is posted, and may land.
  while (has_list() && (error_number == 0 || &entry(posted_).work != bad)) ++posted_;
  return error_number;
}

SendQueue::Done SendQueue::complete(std::uint16_t place) {
  Done done;
  while (done_ != posted_) {
    const std::uint64_t number = done_++;
    const Entry& one = entry(number);
    switch (one.kind) {
      case Kind::Chunk:
        ++done.chunks;
        break;
      case Kind::Control:
        done.control_buffers |= std::uint64_t{1} << one.control_buffer;
        break;
      case Kind::Credit:
        ++done.credits;
        break;
    }
    if (place_of(number) == place) break;
  }
  chunks_ -= done.chunks;
  credits_ -= done.credits;
  return done;
}

void SendQueue::clear() {
  done_ = posted_ = end_ = 0;
  chunks_ = credits_ = 0;
  silent_sends_ = 0;
  silent_bytes_ = 0;
}

}  // namespace allrail::transport::verbs
