// What travels in front of the data of a call: block headers and ready tokens.
#include <algorithm>
#include <array>

#include "coll/block_header.hpp"
#include "coll/ready_token.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace allrail::fuzz {

using coll::kTokenBodyBytes;

std::vector<Bytes> seeds() {
  coll::BlockHeader header;
  header.stamp = 1;
  header.call = 7;
  header.owner = 2;
  std::vector<Bytes> all;
  for (std::uint64_t keys = 1; keys <= transport::kMaxRails; keys += 7) {
    transport::RemoteWindow window;
    window.bytes = 1U << 20;
    for (std::uint64_t i = 0; i < keys; ++i) window.keys.push_back({i << 12, i + 1});
    Bytes token(coll::kTokenBytes);
    std::memcpy(token.data(), &header, sizeof header);
    coll::write_token(window, keys * 4096, std::span(token).last<kTokenBodyBytes>());
    all.push_back(token);
  }
  return all;
}

void fuzz_one(std::span<const std::byte> input) {
  Bytes token(coll::kTokenBytes);
  std::copy_n(input.begin(), std::min(input.size(), token.size()), token.begin());
  coll::BlockHeader header;
  std::memcpy(&header, token.data(), sizeof header);
  constexpr int kRanks = 3;
  if (coll::is_of_call(header, 1, kRanks)) {
    require(header.owner >= 0 && header.owner < kRanks && header.stamp == 1,
            "a header that counts names a rank of the job");
  }
  require(coll::operation_name(header.description.operation) != nullptr,
          "whatever the operation, it can be named in an error");
  const auto body = std::span<const std::byte>(token).last<kTokenBodyBytes>();
  coll::ReadyToken read;
  read.window.bytes = 99;
  read.offset = 98;
  const transport::RemoteWindow& window = read.window;
  if (!coll::read_token(body, read)) {
    require(window.bytes == 99 && read.offset == 98 && window.keys.empty(),
            "a bad token changes nothing");
    return;
  }
  require(read.offset <= window.bytes, "the receive buffer begins inside the window");
  require(!coll::holds(read, window.bytes - read.offset, 1) && coll::holds(read, 0, 0) &&
              !coll::holds(read, UINT64_MAX, 2) && !coll::holds(read, 2, UINT64_MAX),
          "nothing is put beyond the end of the window");
  require(!window.keys.empty() && window.keys.size() <= transport::kMaxRails,
          "there is a key per rail, and no more rails than there can be");
  std::array<std::byte, kTokenBodyBytes> again{};
  coll::write_token(window, read.offset, again);
  const std::size_t used = 24 + window.keys.size() * sizeof(transport::RemoteKey);
  require(equal(std::span(again).first(used), body.first(used)),
          "a token re-encodes to the same bytes");
}

}  // namespace allrail::fuzz
