// Devices, contexts, ports, GIDs and asynchronous events.
#include <cstring>

#include <endian.h>

#include "tests/fake_verbs/world.hpp"

#undef ibv_query_port

namespace allrail::fake_verbs {
namespace {

constexpr int kGids = 4;  // link-local and IPv4, each as RoCE v1 and v2
constexpr int kGidPlaces = 16;

void fill_device(const Device& device, ibv_device_attr* attributes) {
  const DeviceOptions& options = device.options;
  *attributes = {};
  std::strcpy(attributes->fw_ver, "fake");
  attributes->node_guid = ibv_get_device_guid(const_cast<Device*>(&device));
  attributes->sys_image_guid = attributes->node_guid;
  attributes->max_mr_size = UINT64_MAX;
  attributes->page_size_cap = 4096;
  attributes->max_qp = options.max_qp;
  attributes->max_qp_wr = options.max_qp_wr;
  attributes->device_cap_flags = IBV_DEVICE_PORT_ACTIVE_EVENT | IBV_DEVICE_RC_RNR_NAK_GEN;
  attributes->max_sge = options.max_sge;
  attributes->max_sge_rd = options.max_sge;
  attributes->max_cq = 1024;
  attributes->max_cqe = options.max_cqe;
  attributes->max_mr = 65536;
  attributes->max_pd = 1024;
  attributes->max_qp_rd_atom = 16;
  attributes->max_res_rd_atom = 1024;
  attributes->max_qp_init_rd_atom = 16;
  attributes->max_pkeys = 1;
  attributes->local_ca_ack_delay = 15;
  attributes->phys_port_cnt = 1;
}

std::uint16_t lid_of(const Device& device) {
  if (!device.options.infiniband) return 0;
  return static_cast<std::uint16_t>((device.address >> 16) + 4096U * device.times_renumbered);
}

void fill_port(const Device& device, ibv_port_attr& attributes) {
  attributes.state = device.is_cut ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
  attributes.phys_state = device.is_cut ? 3 : 5;
  attributes.max_mtu = IBV_MTU_4096;
  attributes.active_mtu = device.options.mtu;
  attributes.gid_tbl_len = kGidPlaces;
  attributes.port_cap_flags = IBV_PORT_CM_SUP | IBV_PORT_IP_BASED_GIDS;
  attributes.max_msg_sz = device.options.max_message_bytes;
  attributes.pkey_tbl_len = 1;
  attributes.lid = lid_of(device);
  attributes.flags = device.options.needs_gids ? IBV_QPF_GRH_REQUIRED : 0;
  attributes.active_width = 2;   // 4x
  attributes.active_speed = 32;  // 25 Gbit/s each
  attributes.link_layer =
      device.options.infiniband ? IBV_LINK_LAYER_INFINIBAND : IBV_LINK_LAYER_ETHERNET;
}

/// Which of its GIDs lies at a place of the table: all move on by two with each new numbering.
int gid_at(const Device& device, int index) {
  return device.options.infiniband ? index : index - 2 * device.times_renumbered;
}

void fill_gid(const Device& device, int index, ibv_gid_entry& entry) {
  entry = {};
  entry.gid_index = static_cast<std::uint32_t>(index);
  entry.port_num = 1;
  const int which = gid_at(device, index);
  if (device.options.infiniband || which < 2) {
    entry.gid.global.subnet_prefix = htobe64(0xfe80000000000000ULL);
    std::memcpy(entry.gid.raw + 12, &device.address, 4);
    entry.gid.raw[8] = 2;
  } else {
    entry.gid.raw[10] = entry.gid.raw[11] = 0xff;
    std::memcpy(entry.gid.raw + 12, &device.address, 4);
  }
  const bool second = which % 2 == 1;
  entry.gid_type = second ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
  if (device.options.infiniband) entry.gid_type = IBV_GID_TYPE_IB;
}

int gids_of(const Device& device) {
  if (!device.options.has_gids) return 0;
  if (device.options.infiniband) return 1;
  return device.options.has_ip ? kGids : kGids / 2;
}

bool gid_is_set(const Device& device, int index) {
  const int which = gid_at(device, index);
  return which >= 0 && which < gids_of(device) && which != device.options.unset_gid;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes,
               std::size_t length) {
  const Call call("ibv_query_port");
  if (call.error() != 0) return call.error();
  const Context* ours = context_of(context);
  if (ours == nullptr || port != 1) return EINVAL;
  ibv_port_attr filled{};
  fill_port(*ours->owner, filled);
  std::memcpy(attributes, &filled, std::min(length, sizeof filled));
  return 0;
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input*,
                    ibv_device_attr_ex* attributes, std::size_t length) {
  const Call call("ibv_query_device_ex");
  if (call.error() != 0) return call.error();
  const Context* ours = context_of(context);
  if (ours == nullptr || length < sizeof(ibv_device_attr)) return EINVAL;
  std::memset(attributes, 0, length);
  fill_device(*ours->owner, &attributes->orig_attr);
  return 0;
}

}  // namespace

bool has_gid(const Device& device, int index) { return gid_is_set(device, index); }

bool leads_to(const Device& from, const ibv_ah_attr& way, const Device& to,
              const ibv_ah_attr& way_back) {
  if (way.is_global != way_back.is_global) return false;
  if (way.is_global == 0) return way.dlid == lid_of(to);
  ibv_gid_entry mine{};
  fill_gid(from, way.grh.sgid_index, mine);
  ibv_gid_entry theirs{};
  fill_gid(to, way_back.grh.sgid_index, theirs);
  return theirs.gid_type == mine.gid_type &&
         std::memcmp(theirs.gid.raw, way.grh.dgid.raw, sizeof theirs.gid.raw) == 0;
}

void open_context(Context& context, Device& device) {
  context.owner = &device;
  context.sz = sizeof(verbs_context);
  context.query_port = query_port;
  context.query_device_ex = query_device_ex;
  ibv_context& basic = context.context;
  basic.abi_compat = __VERBS_ABI_IS_EXTENDED;
  basic.device = &device;
  basic.cmd_fd = -1;
  basic.async_fd = context.bell.descriptor();
  basic.num_comp_vectors = 4;
  basic.ops.post_send = post_send;
  basic.ops.post_recv = post_receive;
  basic.ops.poll_cq = poll_completions;
  basic.ops.req_notify_cq = request_notification;
}

Context* context_of(ibv_context* context) {
  for (const auto& one : world().contexts)
    if (&one->context == context) return one.get();
  for (const auto& device : world().devices)
    if (device->shared && &device->shared->context == context) return device->shared.get();
  world().misuse("a context is used that is not open");
  return nullptr;
}

Context& shared_context(Device& device) {
  if (!device.shared) {
    device.shared = std::make_unique<Context>();
    open_context(*device.shared, device);
  }
  return *device.shared;
}

void raise_asynchronous(Context& context, const ibv_async_event& event) {
  context.events.push_back(event);
  context.bell.ring();
}

void forget_asynchronous(Context& context, const void* element) {
  const auto of_element = [&](const ibv_async_event& event) {
    if (event.event_type == IBV_EVENT_CQ_ERR) return static_cast<Cq*>(event.element.cq) == element;
    return event.event_type <= IBV_EVENT_PATH_MIG_ERR &&
           static_cast<Qp*>(event.element.qp) == element;
  };
  for (auto count = std::erase_if(context.events, of_element); count > 0; --count)
    context.bell.take();
}

}  // namespace allrail::fake_verbs

using namespace allrail::fake_verbs;  // NOLINT(google-build-using-namespace): for what follows

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  const Call call("ibv_get_device_list");
  if (call.error() != 0) return null_with(call.error());
  auto list = std::make_unique<DeviceList>();
  for (const auto& device : world().devices) list->array.push_back(device.get());
  list->array.push_back(nullptr);
  if (count != nullptr) *count = static_cast<int>(world().devices.size());
  return world().lists.add(std::move(list)).array.data();
}

void ibv_free_device_list(ibv_device** array) {
  const Call call;
  for (const auto& list : world().lists)
    if (list->array.data() == array) return world().lists.remove(list.get());
  world().misuse("a device list is freed twice");
}

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

int ibv_get_device_index(ibv_device* device) {
  const Call call;
  for (std::size_t index = 0; index < world().devices.size(); ++index)
    if (world().devices[index].get() == device) return static_cast<int>(index);
  return -1;
}

__be64 ibv_get_device_guid(ibv_device* device) {
  return htobe64(0x0200000000000000ULL | be32toh(static_cast<Device*>(device)->address));
}

ibv_context* ibv_open_device(ibv_device* device) {
  const Call call("ibv_open_device");
  if (call.error() != 0) return null_with(call.error());
  auto context = std::make_unique<Context>();
  open_context(*context, *static_cast<Device*>(device));
  return &world().contexts.add(std::move(context)).context;
}

int ibv_close_device(ibv_context* context) {
  const Call call("ibv_close_device");
  Context* ours = context_of(context);
  if (ours == nullptr) return minus_one(EINVAL);
  if (call.error() != 0) {
    ours->abandoned = true;
    return minus_one(call.error());
  }
  for (const auto& domain : world().domains)
    if (domain->context == context && !domain->abandoned)
      world().misuse("a context is closed that still has a protection domain");
  world().contexts.remove(ours);
  return 0;
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  const Call call("ibv_query_device");
  if (call.error() != 0) return call.error();
  const Context* ours = context_of(context);
  if (ours == nullptr) return EINVAL;
  fill_device(*ours->owner, attributes);
  return 0;
}

int ibv_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attributes) {
  // Callers from before the extended call have no port_cap_flags2.
  return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attributes),
                    offsetof(ibv_port_attr, port_cap_flags2));
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                      ibv_gid_entry* entry, std::uint32_t flags, std::size_t bytes) {
  const Call call("ibv_query_gid_ex");
  if (call.error() != 0) return call.error();
  const Context* ours = context_of(context);
  if (ours == nullptr || port != 1 || flags != 0) return EINVAL;
  if (index >= kGidPlaces || !gid_is_set(*ours->owner, static_cast<int>(index))) return ENODATA;
  ibv_gid_entry filled{};
  fill_gid(*ours->owner, static_cast<int>(index), filled);
  std::memcpy(entry, &filled, std::min(bytes, sizeof filled));
  return 0;
}

int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  const Call call("ibv_query_gid");
  if (call.error() != 0) return minus_one(call.error());
  const Context* ours = context_of(context);
  if (ours == nullptr || port != 1 || index < 0) return minus_one(EINVAL);
  *gid = {};
  // An empty place of the table reads as zeros.
  if (!gid_is_set(*ours->owner, index)) return 0;
  ibv_gid_entry filled{};
  fill_gid(*ours->owner, index, filled);
  *gid = filled.gid;
  return 0;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t most,
                             std::uint32_t flags, std::size_t bytes) {
  const Call call("ibv_query_gid_table");
  if (call.error() != 0) return -call.error();
  const Context* ours = context_of(context);
  if (ours == nullptr || flags != 0 || bytes != sizeof(ibv_gid_entry)) return -EINVAL;
  if (most < static_cast<std::size_t>(gids_of(*ours->owner))) return -EINVAL;
  ssize_t count = 0;
  for (int index = 0; index < kGidPlaces; ++index)
    if (gid_is_set(*ours->owner, index)) fill_gid(*ours->owner, index, entries[count++]);
  return count;
}

int ibv_query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) {
  const Call call("ibv_query_pkey");
  if (call.error() != 0) return minus_one(call.error());
  if (context_of(context) == nullptr || port != 1 || index != 0) return minus_one(EINVAL);
  *pkey = 0xffff;
  return 0;
}

int ibv_fork_init() {
  const Call call("ibv_fork_init");
  return call.error();
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  Call call;
  Context* ours = context_of(context);
  if (ours == nullptr) return minus_one(EINVAL);
  while (ours->events.empty()) {
    if (ours->bell.nonblocking()) return minus_one(EAGAIN);
    call.wait_for(ours->bell);
  }
  call.count("ibv_get_async_event");
  if (call.error() != 0) return minus_one(call.error());
  *event = ours->events.front();
  ours->events.pop_front();
  ours->bell.take();
  if (event->event_type == IBV_EVENT_CQ_ERR)
    ++static_cast<Cq*>(event->element.cq)->unacknowledged_asynchronous;
  else if (event->event_type <= IBV_EVENT_PATH_MIG_ERR)
    ++static_cast<Qp*>(event->element.qp)->unacknowledged_asynchronous;
  return 0;
}

void ibv_ack_async_event(ibv_async_event* event) {
  const Call call;
  if (event->event_type == IBV_EVENT_CQ_ERR)
    --static_cast<Cq*>(event->element.cq)->unacknowledged_asynchronous;
  else if (event->event_type <= IBV_EVENT_PATH_MIG_ERR)
    --static_cast<Qp*>(event->element.qp)->unacknowledged_asynchronous;
}

}  // extern "C"
