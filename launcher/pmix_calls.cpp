#include "launcher/pmix_calls.hpp"

#include <charconv>
#include <cstring>
#include <utility>

#include "lib/base/error.hpp"
#include "lib/base/thread.hpp"

namespace allrail::launcher {
namespace {

std::chrono::steady_clock::time_point time_point(base::Deadline deadline) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(deadline.at_ns()));
}

/// An array of attributes for one request.
class Attributes {
 public:
  explicit Attributes(std::size_t count) : count_(count) { PMIX_INFO_CREATE(info_, count_); }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  ~Attributes() { PMIX_INFO_FREE(info_, count_); }
  void set(std::size_t index, const char* key, const void* value, pmix_data_type_t type) const {
    PMIX_INFO_LOAD(&info_[index], key, value, type);
  }
  pmix_info_t* data() const { return info_; }
  std::size_t size() const { return count_; }

 private:
  pmix_info_t* info_ = nullptr;
  std::size_t count_;
};

void copy_value(const pmix_value_t& value, Reply& reply) {
  switch (value.type) {
    case PMIX_BYTE_OBJECT: {
      const auto* first = reinterpret_cast<const std::byte*>(value.data.bo.bytes);
      if (first != nullptr) reply.bytes.assign(first, first + value.data.bo.size);
      break;
    }
    case PMIX_STRING:
      if (value.data.string != nullptr) reply.text = value.data.string;
      break;
    case PMIX_UINT32:
      reply.number = value.data.uint32;
      break;
    case PMIX_UINT16:
      reply.number = value.data.uint16;
      break;
    case PMIX_UINT64:
      reply.number = value.data.uint64;
      break;
    case PMIX_SIZE:
      reply.number = value.data.size;
      break;
    case PMIX_INT:
    case PMIX_INT32:
      if (value.data.integer >= 0) reply.number = static_cast<std::uint64_t>(value.data.integer);
      break;
    case PMIX_DATA_ARRAY:
      reply.text = switch_in(value);
      break;
    case PMIX_PROC_RANK:
      reply.number = value.data.rank;
      break;
    default:
      reply.status = PMIX_ERR_TYPE_MISMATCH;
      break;
  }
}

}  // namespace

struct Replies::Cookie {
  std::shared_ptr<Replies> replies;
  std::size_t index;
};

struct Replies::Request {
  explicit Request(std::size_t attribute_count) : attributes(attribute_count) {}
  Attributes attributes;
  std::string key;
};

Replies::Replies(std::size_t count) : replies_(count), arrived_(count, false), open_(count) {}
Replies::~Replies() = default;

std::shared_ptr<Replies> Replies::create(std::size_t count) {
  return std::shared_ptr<Replies>(new Replies(count));
}

Replies::Request& Replies::add_request(std::size_t attribute_count) {
  return *requests_.emplace_back(std::make_unique<Request>(attribute_count));
}

void Replies::complete(std::size_t index, Reply reply) {
  const std::lock_guard lock(mutex_);
  if (arrived_[index]) return;
  replies_[index] = std::move(reply);
  arrived_[index] = true;
  if (--open_ == 0) changed_.notify_all();
}

void Replies::on_fence(pmix_status_t status, void* cookie) {
  const std::unique_ptr<Cookie> owned(static_cast<Cookie*>(cookie));
  Reply reply;
  reply.status = status;
  owned->replies->complete(owned->index, std::move(reply));
}

void Replies::on_get(pmix_status_t status, pmix_value_t* value, void* cookie) {
  const std::unique_ptr<Cookie> owned(static_cast<Cookie*>(cookie));
  Reply reply;
  reply.status = status;
  if (status == PMIX_SUCCESS) {
    if (value != nullptr) {
      copy_value(*value, reply);
    } else {
      reply.status = PMIX_ERR_NOT_FOUND;
    }
  }
  owned->replies->complete(owned->index, std::move(reply));
}

void Replies::start_fence(std::size_t index, bool collect_data, int timeout_s) {
  const Attributes& attributes = add_request(2).attributes;
  attributes.set(0, PMIX_COLLECT_DATA, &collect_data, PMIX_BOOL);
  attributes.set(1, PMIX_TIMEOUT, &timeout_s, PMIX_INT);
  auto* cookie = new Cookie{shared_from_this(), index};
  const pmix_status_t status =
      PMIx_Fence_nb(nullptr, 0, attributes.data(), attributes.size(), on_fence, cookie);
  if (status == PMIX_SUCCESS) return;
  // Any other answer means that there will be no callback.
  on_fence(status == PMIX_OPERATION_SUCCEEDED ? PMIX_SUCCESS : status, cookie);
}

void Replies::start_get(std::size_t index, const pmix_proc_t& of, const char* key, int timeout_s) {
  Request& request = add_request(1);
  request.key = key;
  request.attributes.set(0, PMIX_TIMEOUT, &timeout_s, PMIX_INT);
  start(index, of, request);
}

void Replies::start(std::size_t index, const pmix_proc_t& of, Request& request) {
  auto* cookie = new Cookie{shared_from_this(), index};
  const pmix_status_t status = PMIx_Get_nb(&of, request.key.c_str(), request.attributes.data(),
                                           request.attributes.size(), on_get, cookie);
  if (status != PMIX_SUCCESS) on_get(status, nullptr, cookie);
}

void Replies::start_local_get(std::size_t index, const pmix_proc_t& of, const char* key) {
  constexpr bool kYes = true;
  Request& request = add_request(1);
  request.key = key;
  request.attributes.set(0, PMIX_OPTIONAL, &kYes, PMIX_BOOL);
  start(index, of, request);
}

bool Replies::wait(base::Deadline deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, time_point(deadline), [this] { return open_ == 0; });
}

std::size_t Replies::first_missing() {
  const std::lock_guard lock(mutex_);
  for (std::size_t index = 0; index < arrived_.size(); ++index) {
    if (!arrived_[index]) return index;
  }
  return arrived_.size();
}

std::optional<pmix_status_t> call_with_deadline(base::Deadline deadline,
                                                std::function<pmix_status_t()> call) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<pmix_status_t> status;
  };
  const auto shared = std::make_shared<Shared>();
  base::start_thread("the PMIx client", [shared, call = std::move(call)] {
    const pmix_status_t status = call();
    const std::lock_guard lock(shared->mutex);
    shared->status = status;
    shared->changed.notify_all();
  }).detach();
  std::unique_lock lock(shared->mutex);
  shared->changed.wait_until(lock, time_point(deadline),
                             [&shared] { return shared->status.has_value(); });
  return shared->status;
}

std::string switch_in(const pmix_value_t& value) {
  if (value.type != PMIX_DATA_ARRAY || value.data.darray == nullptr ||
      value.data.darray->type != PMIX_INFO || value.data.darray->array == nullptr) {
    return {};
  }
  const auto* infos = static_cast<const pmix_info_t*>(value.data.darray->array);
  for (std::size_t i = 0; i < value.data.darray->size; ++i) {
    const pmix_value_t& one = infos[i].value;
    if (std::strncmp(infos[i].key, PMIX_FABRIC_SWITCH, PMIX_MAX_KEYLEN) == 0 &&
        one.type == PMIX_STRING && one.data.string != nullptr) {
      return one.data.string;
    }
    if (std::string found = switch_in(one); !found.empty()) return found;
  }
  return {};
}

std::optional<int> major_version(const std::string& version) {
  int major = 0;
  const auto result = std::from_chars(version.data(), version.data() + version.size(), major);
  if (result.ec != std::errc()) return std::nullopt;
  return major;
}

}  // namespace allrail::launcher
