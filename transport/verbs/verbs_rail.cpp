#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "lib/base/clock.hpp"
#include "lib/base/error.hpp"
#include "transport/verbs/verbs_rail_state.hpp"

namespace allrail::transport {

std::unique_ptr<Rail> make_verbs_rail(const VerbsRailOptions& options) {
  return std::make_unique<verbs::VerbsRail>(options);
}

namespace verbs {
namespace {

int mtu_bytes(std::uint8_t code) { return 128 << code; }

/// The device of that name, opened.
DeviceContext open_device_named(const std::string& device, const std::string& rail) {
  int count = 0;
  const DeviceList list = check_pointer(ibv_get_device_list(&count), rail, "list RDMA devices");
  for (ibv_device* const* one = list.get(); *one != nullptr; ++one) {
    if (device == ibv_get_device_name(*one)) {
      return check_pointer(ibv_open_device(*one), rail, "open its device");
    }
  }
  base::fail(Code::BadConfiguration,
             "rail {}: this host has no RDMA device {}; see allrail-info for those that there are",
             rail, device);
}

}  // namespace

void make_nonblocking(int descriptor, const std::string& rail) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  check_minus_one(::fcntl(descriptor, F_SETFL, flags | O_NONBLOCK), rail,
                  "make a descriptor of the device non-blocking");
}

VerbsRail::VerbsRail(const VerbsRailOptions& options)
    : options_(options),
      epoll_(base::check_minus_one(::epoll_create1(EPOLL_CLOEXEC), "cannot make an epoll set")),
      wake_(base::check_minus_one(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC),
                                  "cannot make an eventfd")),
      retry_delay_(options.job_hash ^ (static_cast<std::uint64_t>(options.rank) << 32)) {
  ensure_sodium();
  if (options_.address.empty() && options_.side_addresses.empty()) {
    base::fail(
        Code::BadConfiguration,
        "rail {} has no IP address, and may not connect without one; give its interface one, "
        "or leave ALLRAIL_CONNECT at auto",
        name());
  }
  port_ = static_cast<std::uint8_t>(options_.port);
  if (!options_.address.empty()) listen();
  open_device();
  listen_for_side_channels();
  watch(channel_->fd);
  watch(device_->async_fd);
  watch(wake_.get());
}

VerbsRail::~VerbsRail() {
  for (std::size_t i = 0; i < links_.size(); ++i) dismantle(links_.at(i), nullptr);
}

void VerbsRail::open_device() {
  device_ = listener_ ? check_pointer(ibv_open_device(listener_->verbs->device), name(),
                                      "open its device")
                      : open_device_named(options_.device, name());
  ibv_context* const data = data_context();
  make_nonblocking(device_->async_fd, name());
  domain_ = check_pointer(ibv_alloc_pd(data), name(), "make a protection domain");
  channel_ = check_pointer(ibv_create_comp_channel(data), name(), "make a completion channel");
  make_nonblocking(channel_->fd, name());
  ibv_device_attr device{};
  check_errno_value(ibv_query_device(data, &device), name(), "query its device");
  ibv_port_attr port{};
  check_errno_value(ibv_query_port(data, port_, &port), name(), "query its port");
  mtu_code_ = static_cast<std::uint8_t>(port.active_mtu);
  identity_ = read_identity(*device_, port_, options_.gid_index);
  if (port.max_msg_sz != 0) max_chunk_bytes_ = std::min(max_chunk_bytes_, port.max_msg_sz);
  // Every completion that the links of a queue can have at once fits, so that it never overflows.
  completions_per_queue_ = std::min(device.max_cqe, kLinksPerCompletionQueue * kCompletionsPerLink);
  if (completions_per_queue_ < kCompletionsPerLink || device.max_qp_wr < kReceiveDepth) {
    base::fail(Code::ResourceLimit,
               "rail {}: its device has completion queues of {} and work queues of {} entries; a "
               "link needs {} and {}; name another port in ALLRAIL_RAILS, or use tcp",
               name(), device.max_cqe, device.max_qp_wr, kCompletionsPerLink, kReceiveDepth);
  }
  completions_.reserve(2 * kCompletionBatch);
}

void VerbsRail::watch(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  base::check_minus_one(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event),
                        "cannot watch a descriptor of a rail");
}

RailAddress VerbsRail::my_address() const {
  RailAddress address;
  address.rail = options_.index;
  address.mtu_code = mtu_code_;
  if (listener_) address.manager = from_system_address(rdma_get_local_addr(listener_.get()));
  for (const auto& acceptor : acceptors_) address.side_channel.push_back(acceptor->endpoint());
  return address;
}

std::vector<std::byte> VerbsRail::address() const { return encode(my_address()); }

void VerbsRail::set_job_secret(const JobSecret& secret) {
  options_.secret = secret;
  for (const auto& acceptor : acceptors_) acceptor->set_secret(secret);
}

MemoryRegion VerbsRail::register_memory(std::span<const std::byte> memory, int access) {
  const auto try_once = [&] {
    return ibv_reg_mr(domain_.get(), const_cast<std::byte*>(memory.data()), memory.size(), access);
  };
  ibv_mr* region = try_once();
  if (region == nullptr && errno == ENOMEM && !retired_.empty()) {
    // What is retired counts as given back: a link that goes down for it is less than a call that
    // ends for it.
    retired_.clear();
    region = try_once();
  }
  return check_pointer(region, name(),
                       fmt::format("register {} bytes of memory", memory.size()).c_str());
}

/// Memory of the user is registered with every rail, also with those that carry nothing: one whose
/// device is gone must not end what the others could do.
MemoryRegion VerbsRail::register_for_user(std::span<const std::byte> memory, int access) {
  if (is_off_) return nullptr;
  try {
    return register_memory(memory, access);
  } catch (const Error&) {
    if (!gave_up_device()) throw;
    return nullptr;
  }
}

void VerbsRail::set_primary_window(std::span<std::byte> memory) { window_ = memory; }

RemoteKey VerbsRail::register_window(std::span<std::byte> memory) {
  MemoryRegion region = register_for_user(memory, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  const RemoteKey key{reinterpret_cast<std::uintptr_t>(memory.data()), region ? region->rkey : 0};
  regions_.push_back({memory, std::move(region), 0});
  return key;
}

void VerbsRail::unregister_window(const RemoteKey& key) {
  std::erase_if(regions_, [&](const Region& one) {
    return (one.region ? one.region->rkey : 0) == key.key &&
           reinterpret_cast<std::uintptr_t>(one.memory.data()) == key.address;
  });
}

void VerbsRail::register_source(std::span<const std::byte> memory) {
  if (Region* known = source_region(memory)) {
    ++known->sources;  // requests in flight have its key, whoever of its users ends first
    return;
  }
  regions_.push_back({memory, register_for_user(memory, 0), 1});
}

void VerbsRail::unregister_source(std::span<const std::byte> memory) {
  Region* const known = source_region(memory);
  if (known == nullptr || --known->sources > 0) return;
  MemoryRegion region = std::move(known->region);
  regions_.erase(regions_.begin() + (known - regions_.data()));
  free_retired();
  retire(std::move(region));
}

/// Frees it when all requests that there are now are done: calls that send from the same bytes may
/// have its key, too. (Of a window this would let peers write for longer than they may.)
void VerbsRail::retire(MemoryRegion region) {
  RetiredSource source{std::move(region), {}};
  try {
    for (std::size_t i = 0; source.region && i < links_.size(); ++i) {
      const Link& link = links_.at(i);
      if (link.sends.done() == link.sends.end()) continue;
      source.uses.push_back({link.slot, link.generation, link.sends.end()});
    }
    if (in_use(source)) retired_.push_back(std::move(source));
  } catch (const std::bad_alloc&) {
    // Freed now, for which a link may go down: who gives memory back expects no error.
  }
}

bool VerbsRail::in_use(const RetiredSource& source) const {
  return std::ranges::any_of(source.uses, [this](const RetiredSource::Use& use) {
    const Link& link = links_.at(use.slot);
    return link.generation == use.generation && link.has_queue_pair() &&
           link.sends.done() < use.end;
  });
}

void VerbsRail::free_retired() {
  std::erase_if(retired_, [this](const RetiredSource& source) { return !in_use(source); });
}

/// A window of the same memory is another region, which somebody else gives back.
VerbsRail::Region* VerbsRail::source_region(std::span<const std::byte> memory) {
  const auto at = std::ranges::find_if(regions_, [&](const Region& one) {
    return one.sources > 0 && one.memory.data() == memory.data() &&
           one.memory.size() == memory.size();
  });
  return at != regions_.end() ? &*at : nullptr;
}

const std::uint32_t* VerbsRail::key_of(const std::byte* from, std::uint32_t bytes) const {
  const auto holds = [&](std::span<const std::byte> memory) {
    return from >= memory.data() && from + bytes <= memory.data() + memory.size();
  };
  if (window_region_ && holds(window_)) return &window_region_->lkey;
  // A window may be given back while what a source of the same memory sends is in flight.
  const Region* found = nullptr;
  for (const Region& one : regions_) {
    if (!one.region || !holds(one.memory)) continue;
    if (one.sources > 0) return &one.region->lkey;
    found = &one;
  }
  return found != nullptr ? &found->region->lkey : nullptr;
}

Link* VerbsRail::find(int peer) const { return links_.find(peer); }

Link& VerbsRail::link_of(int peer) {
  if (Link* known = links_.find(peer)) return *known;
  Link& link = links_.make(peer);
  link.peer = peer;
  link.slot = static_cast<std::uint16_t>(links_.size() - 1);
  listed_links_.reserve(links_.size());
  silent_.reserve(2 * links_.size());  // one that was up, or wanted to be, and one that came early
  return link;
}

void VerbsRail::connect(int peer, std::span<const std::byte> address) {
  if (peer < 0 || peer >= options_.size || peer == options_.rank) {
    base::fail_with_peer(Code::Internal, peer, "rail {}: there is no peer {}", name(), peer);
  }
  const std::optional<RailAddress> remote = decode_rail_address(address);
  if (!remote) {
    base::fail_with_peer(Code::Mismatch, peer,
                         "rail {}: rank {} has another kind of rail in its place; give "
                         "ALLRAIL_RAILS the same kind of rails on all hosts",
                         name(), peer);
  }
  // Which of its rails comes is for the connecting end to choose: pairs that do not fit are not
  // tried.
  if (const Link* known = find(peer); known != nullptr && known->wanted && options_.rank > peer) {
    return;
  }
  const Way way = common_way(my_address(), *remote);
  const bool settles_but_mtu =
      my_address().manager && remote->manager && my_address().mtu_code != remote->mtu_code;
  if (way == Way::None && settles_but_mtu) {
    base::fail_with_peer(
        Code::Mismatch, peer,
        "rail {} has an MTU of {} bytes and rank {}'s of {}, which librdmacm does not settle; give "
        "both interfaces the same MTU, choose others with ALLRAIL_RAILS, or leave ALLRAIL_CONNECT "
        "at auto on all hosts",
        name(), mtu_bytes(mtu_code_), peer, mtu_bytes(remote->mtu_code));
  }
  if (way == Way::None) {
    base::fail_with_peer(Code::Mismatch, peer,
                         "rail {} and rank {}'s have no way to connect in common, because one has "
                         "no IP address, or one of another kind; choose ports with ALLRAIL_RAILS "
                         "and addresses with ALLRAIL_GID_INDEX that fit, or leave ALLRAIL_CONNECT "
                         "at auto on all hosts",
                         name(), peer);
  }
  Link& link = link_of(peer);
  const bool is_another = options_.rank < peer && link.remote != *remote;
  if (link.wanted && !is_another) return;
  if (!link.wanted) prepare_buffers(link);  // nothing, if the device is gone
  link.remote = *remote;
  const bool is_other = link.other_way.test(static_cast<std::size_t>(remote->rail));
  link.way = is_other ? next_way(my_address(), *remote, way) : way;
  if (is_another) link.answered = false;
  service_now_ = true;
  if (std::exchange(link.wanted, true)) {
    if (!in_transition(link)) return;
    dismantle(link, nullptr);
  } else {
    link.retry_delay_ms = 0;
  }
  if (options_.rank < peer && link.state == Link::State::Idle) {
    link.state = Link::State::Waiting;
    link.next_try_ns = 0;
  }
}

void VerbsRail::forget(int peer) {
  Link* link = find(peer);
  if (link == nullptr) return;
  link->wanted = false;
  if (link->state != Link::State::Up) dismantle(*link, nullptr);
}

bool VerbsRail::is_up(int peer) const {
  const Link* link = find(peer);
  return link != nullptr && link->is_up();
}

void VerbsRail::close(int peer, RailEvents& events) {
  Link* link = find(peer);
  if (link == nullptr) return;
  dismantle(*link, &events);
  if (link->wanted) wait_for_retry(*link);
}

void VerbsRail::prepare_sleep() {
  for (const CompletionQueueUse& use : completion_queues_) {
    (void)ibv_req_notify_cq(use.queue.get(), 0);
  }
  // What came before a queue was armed wakes nobody, so it is looked for once more.
  for (const CompletionQueueUse& use : completion_queues_) (void)take_completions(use);
  if (next_completion_ == completions_.size() || awake_) return;
  const std::uint64_t one = 1;
  awake_ = ::write(wake_.get(), &one, sizeof one) == sizeof one;
}

}  // namespace verbs
}  // namespace allrail::transport
