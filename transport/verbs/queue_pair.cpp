#include "transport/verbs/queue_pair.hpp"

#include <algorithm>
#include <cstring>

namespace allrail::transport::verbs {
namespace {

/// We read nothing over a link, but some devices want room for one read.
constexpr std::uint8_t kReads = 1;
/// 0.64 ms; nobody waits for it, since there are no retries.
constexpr std::uint8_t kReceiverNotReadyTimer = 12;
/// Routers that a packet may pass.
constexpr std::uint8_t kHops = 64;
constexpr std::size_t kSubnetPrefixBytes = 8;

/// On InfiniBand only packets that leave the subnet carry GIDs, or those of ports that ask for it,
/// as virtual functions do; on Ethernet all do.
bool needs_gids(const DirectPath& path) {
  return path.mine.is_ethernet || path.mine.needs_gids || path.theirs.needs_gids ||
         !std::equal(path.mine.gid.begin(), path.mine.gid.begin() + kSubnetPrefixBytes,
                     path.theirs.gid.begin());
}

ibv_ah_attr way_to_peer(const DirectPath& path) {
  ibv_ah_attr way{};
  way.dlid = path.theirs.lid;
  way.port_num = path.port;
  if (!needs_gids(path)) return way;
  way.is_global = 1;
  static_assert(sizeof way.grh.dgid.raw == std::tuple_size_v<GidBytes>);
  std::memcpy(way.grh.dgid.raw, path.theirs.gid.data(), path.theirs.gid.size());
  way.grh.sgid_index = path.gid_index;
  way.grh.hop_limit = kHops;
  return way;
}

}  // namespace

int to_init(ibv_qp& pair, std::uint8_t port) {
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_INIT;
  wanted.pkey_index = 0;
  wanted.port_num = port;
  wanted.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  return ibv_modify_qp(&pair, &wanted,
                       IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
}

int to_ready_to_receive(ibv_qp& pair, const DirectPath& path) {
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_RTR;
  wanted.ah_attr = way_to_peer(path);
  wanted.path_mtu = static_cast<ibv_mtu>(std::min(path.mine.mtu_code, path.theirs.mtu_code));
  wanted.dest_qp_num = path.theirs.qp_number;
  wanted.rq_psn = path.theirs.first_packet;
  wanted.max_dest_rd_atomic = kReads;
  wanted.min_rnr_timer = kReceiverNotReadyTimer;
  return ibv_modify_qp(&pair, &wanted,
                       IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                           IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

int to_ready_to_send(ibv_qp& pair, const DirectPath& path, std::uint8_t timeout) {
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_RTS;
  wanted.timeout = timeout;
  wanted.retry_cnt = kRetries;
  wanted.rnr_retry = kReceiverNotReadyRetries;
  wanted.sq_psn = path.mine.first_packet;
  wanted.max_rd_atomic = kReads;
  return ibv_modify_qp(&pair, &wanted,
                       IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                           IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

int to_error(ibv_qp& pair) {
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_ERR;
  return ibv_modify_qp(&pair, &wanted, IBV_QP_STATE);
}

}  // namespace allrail::transport::verbs
