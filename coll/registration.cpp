#include "coll/registration.hpp"

#include <algorithm>

namespace allrail::coll {

bool RegistrationBudget::make_room(std::uint64_t bytes) {
  while (bytes > limit_bytes_ || held_bytes_ > limit_bytes_ - bytes) {
    const auto idle =
        std::ranges::find_if(held_, [](const Registration* one) { return !one->in_use(); });
    if (idle == held_.end()) return false;
    (*idle)->release();
  }
  return true;
}

void Registration::make(transport::Fabric& fabric, RegistrationBudget& budget,
                        const Buffers& buffers) {
  release();
  budget.held_.reserve(budget.held_.size() + 1);
  const bool has_window = buffers.window == nullptr && buffers.receive_bytes != 0;
  window_ = {};
  if (has_window) window_ = fabric.register_window({buffers.receive, buffers.receive_bytes});
  const std::span<const std::byte> source(buffers.send,
                                          buffers.send_is_registered ? 0 : buffers.send_bytes);
  try {
    if (!source.empty()) fabric.register_source(source);
  } catch (...) {
    if (has_window) fabric.unregister_window(window_);
    throw;
  }
  has_window_ = has_window;
  fabric_ = &fabric;
  budget_ = &budget;
  source_ = source;
  bytes_ = bytes_of(buffers);
  budget.held_bytes_ += bytes_;
  budget.held_.push_back(this);
}

void Registration::release() noexcept {
  if (fabric_ == nullptr) return;
  if (has_window_) fabric_->unregister_window(window_);
  if (!source_.empty()) fabric_->unregister_source(source_);
  budget_->held_bytes_ -= bytes_;
  std::erase(budget_->held_, this);
  fabric_ = nullptr;
  in_use_ = false;
}

}  // namespace allrail::coll
