// Owners of libibverbs and librdmacm objects, and one helper per return convention of their calls.
// An owner releases its object exactly once; a release that fails is logged, never thrown.
#pragma once

#include <memory>
#include <string>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

namespace allrail::transport::verbs {

/// Logs "cannot release <what>: <errno text>" unless the result is 0. For calls that return 0, or
/// an errno value, or -1 with errno set.
void log_release(int result, const char* what) noexcept;

struct Releaser {
  void operator()(ibv_context* context) const noexcept {
    log_release(ibv_close_device(context), "a device");
  }
  void operator()(ibv_pd* domain) const noexcept {
    log_release(ibv_dealloc_pd(domain), "a protection domain");
  }
  void operator()(ibv_mr* region) const noexcept {
    log_release(ibv_dereg_mr(region), "a memory region");
  }
  void operator()(ibv_comp_channel* channel) const noexcept {
    log_release(ibv_destroy_comp_channel(channel), "a completion channel");
  }
  void operator()(ibv_cq* queue) const noexcept {
    log_release(ibv_destroy_cq(queue), "a completion queue");
  }
  void operator()(ibv_qp* pair) const noexcept {
    log_release(ibv_destroy_qp(pair), "a queue pair");
  }
  void operator()(ibv_device** list) const noexcept { ibv_free_device_list(list); }
  void operator()(rdma_event_channel* channel) const noexcept {
    rdma_destroy_event_channel(channel);
  }
  /// An id takes its queue pair with it. All its events must have been acknowledged.
  void operator()(rdma_cm_id* id) const noexcept {
    if (id->qp != nullptr) rdma_destroy_qp(id);
    log_release(rdma_destroy_id(id), "a connection");
  }
};

template <class Object>
using Owner = std::unique_ptr<Object, Releaser>;

using DeviceContext = Owner<ibv_context>;
using ProtectionDomain = Owner<ibv_pd>;
using MemoryRegion = Owner<ibv_mr>;
using CompletionChannel = Owner<ibv_comp_channel>;
using CompletionQueue = Owner<ibv_cq>;
using QueuePair = Owner<ibv_qp>;  // not one that librdmacm made
using DeviceList = Owner<ibv_device*>;
using EventChannel = Owner<rdma_event_channel>;
using ConnectionId = Owner<rdma_cm_id>;

/// For calls that return a null pointer and set errno.
/// @throws Error{ResourceLimit} "rail NAME: cannot ACTION: <errno text>".
template <class Object>
Owner<Object> check_pointer(Object* object, const std::string& rail, const char* action);
/// For calls that return -1 and set errno (librdmacm). Throws alike.
void check_minus_one(int result, const std::string& rail, const char* action);
/// For calls that return 0 or an errno value (libibverbs). Throws alike.
void check_errno_value(int result, const std::string& rail, const char* action);

[[noreturn]] void fail_call(int error_number, const std::string& rail, const char* action);

template <class Object>
Owner<Object> check_pointer(Object* object, const std::string& rail, const char* action) {
  if (object == nullptr) fail_call(errno, rail, action);
  return Owner<Object>(object);
}

}  // namespace allrail::transport::verbs
