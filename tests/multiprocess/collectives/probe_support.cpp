#include "tests/multiprocess/collectives/probe_support.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <numeric>
#include <random>
#include <sstream>
#include <thread>

namespace probe {
namespace {

constexpr unsigned char kUntouched = 0xa5;
constexpr std::size_t kGuardBytes = 192;

std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  std::uint64_t x = (a + 0x9e3779b97f4a7c15ULL) * 0xbf58476d1ce4e5b9ULL ^ b;
  x = (x ^ x >> 30) * 0x94d049bb133111ebULL;
  return x ^ x >> 31;
}

std::uint64_t pattern_word(std::uint64_t seed, std::uint64_t word) {
  const std::uint64_t x = (seed + word) * 0x9e3779b97f4a7c15ULL;
  return x ^ x >> 29;
}

std::uint64_t pattern_seed(int rank, std::uint64_t call) {
  return mix(static_cast<std::uint64_t>(rank) + 1, call);
}

}  // namespace

Arguments::Arguments(int argc, char** argv) {
  for (int at = 1; at < argc; ++at) {
    const std::string word = argv[at];
    const auto equals = word.find('=');
    if (equals == std::string::npos) {
      mode_ = word;
    } else {
      values_[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
}

std::string Arguments::text(const std::string& name, const std::string& fallback) const {
  const auto found = values_.find(name);
  return found == values_.end() ? fallback : found->second;
}

std::int64_t Arguments::number(const std::string& name, std::int64_t fallback) const {
  return std::atoll(text(name, std::to_string(fallback)).c_str());
}

double Arguments::seconds(const std::string& name, double fallback) const {
  return std::atof(text(name, std::to_string(fallback)).c_str());
}

std::vector<std::string> Arguments::texts(const std::string& name,
                                          const std::string& fallback) const {
  std::vector<std::string> result;
  std::istringstream words(text(name, fallback));
  for (std::string word; std::getline(words, word, ',');) result.push_back(word);
  return result;
}

std::vector<std::int64_t> Arguments::numbers(const std::string& name,
                                             const std::string& fallback) const {
  std::vector<std::int64_t> result;
  for (const std::string& word : texts(name, fallback)) result.push_back(std::atoll(word.c_str()));
  return result;
}

std::uint64_t scattered(std::uint64_t number) { return std::mt19937_64(number)() >> 8; }

double now_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void say(const std::string& line) {
  const std::string whole = line + "\n";
  std::fwrite(whole.data(), 1, whole.size(), stdout);
  std::fflush(stdout);
}

std::uint64_t registrations(allrail::Communicator& communicator) {
  std::uint64_t sum = 0;
  for (const auto& rail : communicator.rail_statistics()) sum += rail.registrations;
  return sum;
}

std::uint64_t chunks_sent(allrail::Communicator& communicator) {
  std::uint64_t sum = 0;
  for (const auto& rail : communicator.rail_statistics()) sum += rail.chunks_sent;
  return sum;
}

std::string describe(const allrail::Error& error) {
  char text[96];
  std::snprintf(text, sizeof text, "%s peer %d at %.6f: ", allrail::code_name(error.code()),
                error.peer(), now_seconds());
  return text + std::string(error.what());
}

void fill_pattern(std::span<unsigned char> block, int rank, std::uint64_t call) {
  const std::uint64_t seed = pattern_seed(rank, call);
  for (std::size_t at = 0; at < block.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = pattern_word(seed, at);
    std::memcpy(&block[at], &word, std::min(sizeof word, block.size() - at));
  }
}

std::int64_t find_wrong_byte(std::span<const unsigned char> block, int rank, std::uint64_t call) {
  const std::uint64_t seed = pattern_seed(rank, call);
  for (std::size_t at = 0; at < block.size(); at += sizeof(std::uint64_t)) {
    const std::uint64_t word = pattern_word(seed, at);
    const std::size_t bytes = std::min(sizeof word, block.size() - at);
    if (std::memcmp(&block[at], &word, bytes) == 0) continue;
    unsigned char expected[sizeof word];
    std::memcpy(expected, &word, sizeof word);
    const auto wrong = std::mismatch(expected, expected + bytes, &block[at]).first - expected;
    return static_cast<std::int64_t>(at) + wrong;
  }
  return -1;
}

std::string Exchange::text() const {
  static constexpr const char* kNames[] = {"barrier", "allgather", "allgatherv",
                                           "allgatherv with displacements"};
  std::ostringstream out;
  out << "call " << number << ": " << kNames[static_cast<int>(kind)];
  if (kind == Kind::Barrier) return out.str();
  out << (in_place ? " in place" : "") << " by " << (options.algorithm.empty() ? "auto" : "")
      << options.algorithm << ", ports " << options.ports << ", leaders " << options.leaders
      << ", elements of " << element_bytes << " bytes, counts";
  for (const std::size_t count : counts) out << ' ' << count;
  return out.str();
}

std::size_t Exchange::offset_bytes(std::size_t rank) const {
  const std::size_t elements =
      kind == Kind::Displaced
          ? displacements[rank]
          : std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank),
                            std::size_t{0});
  return elements * element_bytes;
}

Exchange same_from_all(int ranks, std::size_t bytes) {
  Exchange exchange;
  exchange.counts.assign(static_cast<std::size_t>(ranks), bytes);
  exchange.receive_elements = bytes * static_cast<std::size_t>(ranks);
  return exchange;
}

Exchange uneven(std::vector<std::size_t> counts, std::size_t element_bytes) {
  Exchange exchange;
  exchange.kind = Exchange::Kind::Allgatherv;
  exchange.element_bytes = element_bytes;
  exchange.receive_elements = std::accumulate(counts.begin(), counts.end(), std::size_t{0});
  exchange.counts = std::move(counts);
  return exchange;
}

void displace(Exchange& exchange, std::size_t gap) {
  exchange.kind = Exchange::Kind::Displaced;
  exchange.displacements.assign(exchange.counts.size(), 0);
  std::size_t place = gap;
  for (std::size_t rank = exchange.counts.size(); rank-- > 0;) {
    exchange.displacements[rank] = place;
    place += exchange.counts[rank] + (gap * 7 + rank * 3) % (gap + 5);
  }
  exchange.receive_elements = place;
  // Where a block is empty its place does not matter.
  for (std::size_t rank = 1; rank < exchange.counts.size(); rank += 2) {
    if (exchange.counts[rank] == 0) exchange.displacements[rank] = place + 1;
  }
}

template <class Element>
void Caller::call(const Exchange& exchange, std::size_t send_place, std::size_t receive_place) {
  const auto me = static_cast<std::size_t>(communicator_.rank());
  std::span<Element> receive(reinterpret_cast<Element*>(&receive_[receive_place]),
                             exchange.receive_elements);
  std::span<const Element> send(reinterpret_cast<const Element*>(&send_[send_place]),
                                exchange.counts[me]);
  if (exchange.in_place && !send.empty()) {
    send = receive.subspan(exchange.offset_bytes(me) / sizeof(Element), exchange.counts[me]);
  }
  if (exchange.kind == Exchange::Kind::Allgather) {
    communicator_.allgather(send, receive, exchange.options);
  } else if (exchange.kind == Exchange::Kind::Allgatherv) {
    communicator_.allgatherv(send, receive, exchange.counts, exchange.options);
  } else {
    communicator_.allgatherv(send, receive, exchange.counts, exchange.displacements,
                             exchange.options);
  }
}

void Caller::make(const Exchange& exchange) {
  if (exchange.kind == Exchange::Kind::Barrier) return communicator_.barrier();
  const auto me = static_cast<std::size_t>(communicator_.rank());
  const std::size_t mine = exchange.counts[me] * exchange.element_bytes;
  const std::size_t whole = exchange.receive_elements * exchange.element_bytes;
  // Another address in every call, odd ones too where elements are bytes.
  const std::size_t shift = (exchange.number * 13 + me * 5) % 64 / exchange.element_bytes;
  const std::size_t place = kGuardBytes + shift * exchange.element_bytes;
  send_.resize(std::max(send_.size(), place + mine + kGuardBytes));
  receive_.resize(std::max(receive_.size(), place + whole + kGuardBytes));
  expected_.assign(place + whole + kGuardBytes, kUntouched);
  std::fill_n(receive_.begin(), place + whole + kGuardBytes, kUntouched);
  const std::span<unsigned char> send(&send_[place], mine);
  fill_pattern(send, communicator_.rank(), exchange.number);
  if (exchange.in_place) {
    std::copy(send.begin(), send.end(), &receive_[place + exchange.offset_bytes(me)]);
  }
  if (exchange.element_bytes == 1) {
    call<unsigned char>(exchange, place, place);
  } else {
    call<std::uint64_t>(exchange, place, place);
  }
  check(exchange, place, place);
}

void Caller::check(const Exchange& exchange, std::size_t send_place, std::size_t receive_place) {
  const auto me = static_cast<std::size_t>(communicator_.rank());
  for (std::size_t rank = 0; rank < exchange.counts.size(); ++rank) {
    const std::size_t bytes = exchange.counts[rank] * exchange.element_bytes;
    fill_pattern(std::span(expected_).subspan(receive_place + exchange.offset_bytes(rank), bytes),
                 static_cast<int>(rank), exchange.number);
  }
  if (std::memcmp(expected_.data(), receive_.data(), expected_.size()) != 0) {
    const auto wrong = std::mismatch(expected_.begin(), expected_.end(), receive_.begin()).first;
    const auto at = (wrong - expected_.begin()) - static_cast<std::ptrdiff_t>(receive_place);
    std::size_t many = 0;
    for (std::size_t i = 0; i < expected_.size(); ++i) many += expected_[i] != receive_[i] ? 1 : 0;
    throw WrongBytes("wrong bytes at rank " + std::to_string(me) + ", the first of " +
                     std::to_string(many) + " at place " + std::to_string(at) +
                     " of the receive buffer: " + exchange.text());
  }
  const std::size_t mine = exchange.counts[me] * exchange.element_bytes;
  if (find_wrong_byte(std::span(send_).subspan(send_place, mine), communicator_.rank(),
                      exchange.number) >= 0) {
    throw WrongBytes("the send buffer of rank " + std::to_string(me) +
                     " was changed: " + exchange.text());
  }
}

}  // namespace probe
