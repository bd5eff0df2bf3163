#include "transport/control/messages.hpp"

#include <algorithm>
#include <cstring>

namespace allrail::transport::control {
namespace {

enum class Type : std::uint8_t { Abort = 1, Heartbeat = 2, Goodbye = 3 };

/// Numbers travel with the lowest byte first.
class Writer {
 public:
  explicit Writer(Type type) {
    bytes_.reserve(64);  // also keeps g++ 12 from warning of bounds that are kept
    bytes_.resize(kLengthBytes);
    number(static_cast<std::uint8_t>(type));
  }
  template <class Number>
  void number(Number value) {
    for (std::size_t at = 0; at < sizeof(Number); ++at) {
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * at)));
    }
  }
  void text(const std::string& value) {
    for (const char character : value) bytes_.push_back(static_cast<std::byte>(character));
  }
  std::vector<std::byte> finish() {
    const std::size_t length = bytes_.size() - kLengthBytes;
    for (std::size_t at = 0; at < kLengthBytes; ++at) {
      bytes_[at] = static_cast<std::byte>(length >> (8 * at));
    }
    return std::move(bytes_);
  }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class Number>
  Number number() {
    std::uint64_t value = 0;
    if (bytes_.size() < sizeof(Number)) {
      failed_ = true;
      return 0;
    }
    for (std::size_t at = 0; at < sizeof(Number); ++at) {
      value |= std::to_integer<std::uint64_t>(bytes_[at]) << (8 * at);
    }
    bytes_ = bytes_.subspan(sizeof(Number));
    return static_cast<Number>(value);
  }
  std::string rest_as_text() {
    std::string text(bytes_.size(), '\0');
    if (!bytes_.empty()) std::memcpy(text.data(), bytes_.data(), bytes_.size());
    bytes_ = {};
    return text;
  }
  bool complete() const { return !failed_ && bytes_.empty(); }
  std::size_t left() const { return bytes_.size(); }

 private:
  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

constexpr std::size_t kWaitBytes = 4 + 8 + 8;
constexpr std::size_t kLateBytes = 4 + 8 + 4;
static_assert(1 + 1 + kMaxWaits * kWaitBytes + kLateBytes <= kMaxMessageBytes);
static_assert(1 + 8 + kMaxCauseBytes <= kMaxMessageBytes);

std::optional<Message> decode_abort(Reader& reader) {
  AbortCause cause;
  cause.code = reader.number<std::int32_t>();
  cause.peer = reader.number<std::int32_t>();
  if (reader.left() > kMaxCauseBytes) return std::nullopt;
  cause.text = reader.rest_as_text();
  if (!reader.complete()) return std::nullopt;
  return cause;
}

std::optional<Message> decode_heartbeat(Reader& reader) {
  const std::size_t count = reader.number<std::uint8_t>();
  if (count > kMaxWaits || reader.left() != count * kWaitBytes + kLateBytes) return std::nullopt;
  Heartbeat heartbeat;
  for (std::size_t index = 0; index < count; ++index) {
    Wait wait;
    wait.rank = reader.number<std::int32_t>();
    wait.sequence = reader.number<std::uint64_t>();
    wait.stamp = reader.number<std::uint64_t>();
    heartbeat.waits.push_back(wait);
  }
  heartbeat.late.rank = reader.number<std::int32_t>();
  heartbeat.late.sequence = reader.number<std::uint64_t>();
  heartbeat.late.age_ms = reader.number<std::uint32_t>();
  if (!reader.complete()) return std::nullopt;
  return heartbeat;
}

}  // namespace

std::vector<std::byte> encode(const AbortCause& cause) {
  Writer writer(Type::Abort);
  writer.number(static_cast<std::int32_t>(cause.code));
  writer.number(static_cast<std::int32_t>(cause.peer));
  writer.text(cause.text.substr(0, kMaxCauseBytes));
  return writer.finish();
}

std::vector<std::byte> encode(const Heartbeat& heartbeat) {
  Writer writer(Type::Heartbeat);
  const std::size_t count = std::min(heartbeat.waits.size(), kMaxWaits);
  writer.number(static_cast<std::uint8_t>(count));
  for (std::size_t index = 0; index < count; ++index) {
    writer.number(static_cast<std::int32_t>(heartbeat.waits[index].rank));
    writer.number(heartbeat.waits[index].sequence);
    writer.number(heartbeat.waits[index].stamp);
  }
  writer.number(static_cast<std::int32_t>(heartbeat.late.rank));
  writer.number(heartbeat.late.sequence);
  writer.number(heartbeat.late.age_ms);
  return writer.finish();
}

std::vector<std::byte> encode(const Goodbye&) { return Writer(Type::Goodbye).finish(); }

std::optional<Message> decode(std::span<const std::byte> bytes) {
  if (bytes.empty() || bytes.size() > kMaxMessageBytes) return std::nullopt;
  Reader reader(bytes);
  switch (static_cast<Type>(reader.number<std::uint8_t>())) {
    case Type::Abort:
      return decode_abort(reader);
    case Type::Heartbeat:
      return decode_heartbeat(reader);
    case Type::Goodbye:
      if (!reader.complete()) return std::nullopt;
      return Goodbye{};
  }
  return Unknown{};
}

std::optional<std::size_t> decode_length(std::span<const std::byte, kLengthBytes> bytes) {
  const std::size_t length = Reader(bytes).number<std::uint32_t>();
  if (length == 0 || length > kMaxMessageBytes) return std::nullopt;
  return length;
}

}  // namespace allrail::transport::control
