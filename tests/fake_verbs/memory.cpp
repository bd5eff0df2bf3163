// Protection domains and memory regions.
#include "tests/fake_verbs/world.hpp"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace allrail::fake_verbs {
namespace {

/// The error of a registration, or 0.
int why_no_region(const Device& device, const void* address, std::size_t bytes, unsigned access) {
  constexpr unsigned kRemoteChanges = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;
  if (address == nullptr || bytes == 0) return EINVAL;
  if ((access & kRemoteChanges) != 0 && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  const DeviceOptions& options = device.options;
  // The kernel answers so when the limit of locked memory would be passed.
  if (bytes > options.max_registered_bytes - device.registered_bytes) return ENOMEM;
  return 0;
}

ibv_mr* add_region(const Call& call, ibv_pd* domain, void* address, std::size_t bytes,
                   std::uint64_t start, unsigned access) {
  if (call.error() != 0) return null_with(call.error());
  World& all = world();
  if (!all.domains.holds(static_cast<Domain*>(domain))) {
    all.misuse("memory is registered in a protection domain that does not exist");
    return null_with(EINVAL);
  }
  Device& device = *context_of(domain->context)->owner;
  const int error = why_no_region(device, address, bytes, access);
  if (error != 0) return null_with(error);
  auto region = std::make_unique<Region>();
  region->context = domain->context;
  region->pd = domain;
  region->addr = address;
  region->length = bytes;
  region->start = start;
  region->access = access;
  region->lkey = all.new_key();
  region->rkey = all.new_key();
  region->handle = region->lkey;
  device.registered_bytes += bytes;
  return &all.regions.add(std::move(region));
}

}  // namespace

std::byte* memory_behind(const ibv_pd* domain, std::uint32_t key, bool remote,
                         std::uint64_t address, std::uint64_t bytes, unsigned access) {
  for (const auto& region : world().regions) {
    if ((remote ? region->rkey : region->lkey) != key || region->abandoned) continue;
    if (region->pd != domain || (region->access & access) != access) return nullptr;
    if (address < region->start || bytes > region->length) return nullptr;
    const std::uint64_t offset = address - region->start;
    if (offset > region->length - bytes) return nullptr;
    return static_cast<std::byte*>(region->addr) + offset;
  }
  return nullptr;
}

}  // namespace allrail::fake_verbs

using namespace allrail::fake_verbs;  // NOLINT(google-build-using-namespace): for what follows

extern "C" {

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  const Call call("ibv_alloc_pd");
  if (call.error() != 0) return null_with(call.error());
  if (context_of(context) == nullptr) return null_with(EINVAL);
  auto domain = std::make_unique<Domain>();
  domain->context = context;
  return &world().domains.add(std::move(domain));
}

int ibv_dealloc_pd(ibv_pd* pd) {
  const Call call("ibv_dealloc_pd");
  World& all = world();
  auto* domain = static_cast<Domain*>(pd);
  if (!all.domains.holds(domain)) {
    all.misuse("a protection domain is released that does not exist");
    return EINVAL;
  }
  if (call.error() != 0) {
    domain->abandoned = true;
    return call.error();
  }
  for (const auto& region : all.regions)
    if (region->pd == pd && !region->abandoned) return EBUSY;
  for (const auto& qp : all.qps)
    if (qp->pd == pd && !qp->abandoned) return EBUSY;
  // What was abandoned may name it until reset().
  for (const auto& region : all.regions)
    if (region->pd == pd) region->pd = nullptr;
  for (const auto& qp : all.qps)
    if (qp->pd == pd) qp->pd = nullptr;
  all.domains.remove(domain);
  return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t bytes, int access) {
  const Call call("ibv_reg_mr");
  return add_region(call, pd, address, bytes, reinterpret_cast<std::uintptr_t>(address),
                    static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t start,
                        int access) {
  const Call call("ibv_reg_mr");
  return add_region(call, pd, address, bytes, start, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t bytes, std::uint64_t start,
                         unsigned access) {
  const Call call("ibv_reg_mr");
  return add_region(call, pd, address, bytes, start, access);
}

int ibv_dereg_mr(ibv_mr* mr) {
  const Call call("ibv_dereg_mr");
  auto* region = static_cast<Region*>(mr);
  if (!world().regions.holds(region)) {
    world().misuse("a memory region is released that does not exist");
    return EINVAL;
  }
  if (!region->abandoned) context_of(region->context)->owner->registered_bytes -= region->length;
  if (call.error() != 0) {
    region->abandoned = true;
    return call.error();
  }
  world().regions.remove(region);
  return 0;
}

}  // extern "C"
