// The texts of states, statuses and events, as the real libraries have them.
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

namespace {

template <int kCount>
const char* text_of(const char* const (&texts)[kCount], int value, const char* unknown) {
  return value >= 0 && value < kCount && texts[value] != nullptr ? texts[value] : unknown;
}

}  // namespace

extern "C" {

const char* ibv_wc_status_str(ibv_wc_status status) {
  static const char* const kTexts[] = {
      "success",
      "local length error",
      "local QP operation error",
      "local EE context operation error",
      "local protection error",
      "Work Request Flushed Error",
      "memory management operation error",
      "bad response error",
      "local access error",
      "remote invalid request error",
      "remote access error",
      "remote operation error",
      "transport retry counter exceeded",
      "RNR retry counter exceeded",
      "local RDD violation error",
      "remote invalid RD request",
      "aborted error",
      "invalid EE context number",
      "invalid EE context state",
      "fatal error",
      "response timeout error",
      "general error",
      "TM error",
      "TM software rendezvous",
  };
  return text_of(kTexts, status, "unknown");
}

const char* ibv_node_type_str(ibv_node_type type) {
  static const char* const kTexts[] = {
      nullptr,
      "InfiniBand channel adapter",
      "InfiniBand switch",
      "InfiniBand router",
      "iWARP NIC",
      "usNIC",
      "usNIC UDP",
      "unspecified",
  };
  return text_of(kTexts, type, "unknown");
}

const char* ibv_port_state_str(ibv_port_state state) {
  static const char* const kTexts[] = {
      "no state change (NOP)", "down", "init", "armed", "active", "active defer",
  };
  return text_of(kTexts, state, "unknown");
}

const char* ibv_event_type_str(ibv_event_type event) {
  static const char* const kTexts[] = {
      "CQ error",
      "local work queue catastrophic error",
      "invalid request local work queue error",
      "local access violation work queue error",
      "communication established",
      "send queue drained",
      "path migrated",
      "path migration request error",
      "local catastrophic error",
      "port active",
      "port error",
      "LID change",
      "P_Key change",
      "SM change",
      "SRQ catastrophic error",
      "SRQ limit reached",
      "last WQE reached",
      "client reregistration",
      "GID table change",
      "WQ fatal",
  };
  return text_of(kTexts, event, "unknown");
}

const char* rdma_event_str(rdma_cm_event_type event) {
  static const char* const kTexts[] = {
      "RDMA_CM_EVENT_ADDR_RESOLVED",   "RDMA_CM_EVENT_ADDR_ERROR",
      "RDMA_CM_EVENT_ROUTE_RESOLVED",  "RDMA_CM_EVENT_ROUTE_ERROR",
      "RDMA_CM_EVENT_CONNECT_REQUEST", "RDMA_CM_EVENT_CONNECT_RESPONSE",
      "RDMA_CM_EVENT_CONNECT_ERROR",   "RDMA_CM_EVENT_UNREACHABLE",
      "RDMA_CM_EVENT_REJECTED",        "RDMA_CM_EVENT_ESTABLISHED",
      "RDMA_CM_EVENT_DISCONNECTED",    "RDMA_CM_EVENT_DEVICE_REMOVAL",
      "RDMA_CM_EVENT_MULTICAST_JOIN",  "RDMA_CM_EVENT_MULTICAST_ERROR",
      "RDMA_CM_EVENT_ADDR_CHANGE",     "RDMA_CM_EVENT_TIMEWAIT_EXIT",
  };
  return text_of(kTexts, event, "UNKNOWN EVENT");
}

}  // extern "C"
