// Modes with memory that Allrail gives, and with memory that moves under its feet.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include <sys/mman.h>
#include <unistd.h>

#include "tests/multiprocess/collectives/probe_support.hpp"

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1U
#endif

namespace probe {
namespace {

using allrail::Communicator;
using Bytes = std::vector<unsigned char>;
using Span = std::span<unsigned char>;

constexpr unsigned char kUntouched = 0xa5;

void require(bool holds, const Communicator& communicator, const std::string& what) {
  if (!holds) throw WrongBytes("rank " + std::to_string(communicator.rank()) + ": " + what);
}

/// One allgather of blocks of that size; returns how often memory was registered in it.
class Gather {
 public:
  Gather(Communicator& communicator, std::size_t bytes)
      : communicator_(communicator), bytes_(bytes) {}

  std::uint64_t call(Span send, Span receive, const std::string& what) {
    const auto ranks = static_cast<std::size_t>(communicator_.size());
    ++number_;
    std::ranges::fill(receive, kUntouched);
    fill_pattern(send, communicator_.rank(), number_);
    const std::uint64_t before = registrations(communicator_);
    communicator_.allgather(send, receive);
    const std::uint64_t made = registrations(communicator_) - before;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const Span block = receive.subspan(rank * bytes_, bytes_);
      const auto wrong = find_wrong_byte(block, static_cast<int>(rank), number_);
      require(wrong < 0, communicator_,
              "wrong byte " + std::to_string(wrong) + " of block " + std::to_string(rank) + " of " +
                  std::to_string(bytes_) + " bytes, " + what);
    }
    return made;
  }
  Span in_place(Span receive) const {
    return receive.subspan(static_cast<std::size_t>(communicator_.rank()) * bytes_, bytes_);
  }

 private:
  Communicator& communicator_;
  std::size_t bytes_;
  inline static std::uint64_t number_ = 0;
};

/// Receives into a part of a Buffer, from ordinary memory, from a Buffer and in place.
void check_size(Communicator& communicator, std::size_t bytes) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  constexpr std::size_t kBefore = 13;
  constexpr std::size_t kBehind = 7;
  auto buffer = communicator.allocate<unsigned char>(kBefore + ranks * bytes + kBehind);
  auto source = communicator.allocate<unsigned char>(bytes);
  Bytes ordinary(bytes);
  require(std::ranges::count(buffer, 0) == static_cast<std::ptrdiff_t>(buffer.size()), communicator,
          "a new Buffer is not zero");
  std::ranges::fill(buffer, kUntouched);
  const Span receive = Span(buffer).subspan(kBefore, ranks * bytes);
  Gather gather(communicator, bytes);
  for (int turn = 0; turn < 2; ++turn) {
    const std::uint64_t rails = communicator.rail_statistics().size();
    const std::uint64_t made = gather.call(ordinary, receive, "from ordinary memory");
    require(made <= rails, communicator, "the receive buffer was registered");
    require(gather.call(source, receive, "from a Buffer") == 0 &&
                gather.call(gather.in_place(receive), receive, "in place") == 0,
            communicator, "a call with Buffers registered memory");
  }
  require(std::ranges::count(Span(buffer).first(kBefore), kUntouched) == kBefore &&
              std::ranges::count(Span(buffer).last(kBehind), kUntouched) == kBehind,
          communicator, "bytes around the receive buffer were changed");
}

/// Blocks of their own length from every rank, between Buffers.
void check_uneven(Communicator& communicator, std::size_t most) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  std::vector<std::size_t> counts(ranks);
  std::size_t total = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    counts[rank] = rank == 1 ? 0 : most - rank * 1001;
    total += counts[rank];
  }
  auto source =
      communicator.allocate<unsigned char>(counts[static_cast<std::size_t>(communicator.rank())]);
  auto result = communicator.allocate<unsigned char>(total);
  fill_pattern(source, communicator.rank(), 77);
  const std::uint64_t before = registrations(communicator);
  communicator.allgatherv(source, result, counts);
  require(registrations(communicator) == before, communicator, "allgatherv registered memory");
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Span block = Span(result).subspan(at, counts[rank]);
    require(find_wrong_byte(block, static_cast<int>(rank), 77) < 0, communicator,
            "allgatherv between Buffers brought wrong bytes");
    at += counts[rank];
  }
}

/// Buffers that move, of no bytes, of different sizes, and one that ends before the other.
void check_lives(Communicator& communicator, std::size_t bytes) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto me = static_cast<std::size_t>(communicator.rank());
  const auto none = communicator.allocate<double>(0);
  require(none.empty() && none.data() == nullptr && none.begin() == none.end(), communicator,
          "a Buffer of no elements has some");
  // Only some ranks want memory, and none of them the same.
  auto uneven = communicator.allocate<std::uint64_t>(me % 2 == 0 ? 0 : 1000 * me);
  for (std::size_t i = 0; i < uneven.size(); ++i) uneven[i] = i;

  Gather gather(communicator, bytes);
  Bytes send(bytes);
  auto first = communicator.allocate<unsigned char>(ranks * bytes);
  auto second = communicator.allocate<unsigned char>(ranks * bytes);
  unsigned char* const place = second.data();
  gather.call(send, first, "into the first");
  auto moved = std::move(second);
  require(second.empty() && second.data() == nullptr && moved.data() == place, communicator,
          "a moved Buffer is not where it was");
  first = allrail::Buffer<unsigned char>();  // ends while the other lives
  require(gather.call(gather.in_place(moved), moved, "into the second, moved") == 0, communicator,
          "a moved Buffer was registered");
  first = std::move(moved);
  require(gather.call(gather.in_place(first), first, "moved back") == 0, communicator,
          "a Buffer that moved back was registered");
  for (std::size_t i = 0; i < uneven.size(); ++i) {
    require(uneven[i] == i, communicator, "another Buffer was changed");
  }
}

/// Some ranks still send from their parts of an allocation when others have ended theirs, or had
/// none of it.
void check_parts_outlive(Communicator& communicator, std::size_t bytes) {
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const bool is_odd = communicator.rank() % 2 == 1;
  auto result = communicator.allocate<unsigned char>(ranks * bytes);
  auto everybodys = communicator.allocate<unsigned char>(bytes);
  auto of_some = communicator.allocate<unsigned char>(is_odd ? 0 : bytes);
  Bytes ordinary(bytes);
  Gather gather(communicator, bytes);
  if (is_odd) everybodys = {};
  gather.call(is_odd ? Span(ordinary) : Span(everybodys), result, "from Buffers that others ended");
  gather.call(is_odd ? Span(ordinary) : Span(of_some), result, "from Buffers that others have not");
  everybodys = {};
  of_some = {};
  gather.call(ordinary, result, "after all of them ended");
}

/// Memory of `file` at `place`, or anywhere.
Span map(int file, std::size_t bytes, void* place) {
  void* const got = ::mmap(place, bytes, PROT_READ | PROT_WRITE,
                           MAP_SHARED | (place != nullptr ? MAP_FIXED_NOREPLACE : 0), file, 0);
  if (got == MAP_FAILED || (place != nullptr && got != place)) {
    throw WrongBytes(std::string("mmap: ") + std::strerror(errno));
  }
  return {static_cast<unsigned char*>(got), bytes};
}

int make_file(std::size_t bytes) {
  const int file = ::memfd_create("probe", MFD_CLOEXEC);
  if (file < 0 || ::ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    throw WrongBytes(std::string("memfd_create: ") + std::strerror(errno));
  }
  return file;
}

}  // namespace

int run_buffers(const Arguments& arguments) {
  std::optional<Communicator> communicator(Communicator::world());
  for (const std::int64_t bytes : arguments.numbers("sizes", "0,1,13,4097,100003,3000001")) {
    check_size(*communicator, static_cast<std::size_t>(bytes));
  }
  check_uneven(*communicator, 3'000'001);
  check_lives(*communicator, 100);
  check_lives(*communicator, 3'000'001);
  for (const std::size_t bytes : {100, 70'001, 3'000'001})
    check_parts_outlive(*communicator, bytes);
  auto survivor = communicator->allocate<int>(1000);
  survivor[999] = 999;
  communicator->barrier();
  const int rank = communicator->rank();
  communicator.reset();
  survivor[0] = survivor[999];
  say("rank " + std::to_string(rank) + " buffers done");
  return survivor[0] == 999 ? 0 : 1;
}

/// Other memory comes to lie where the memory of an earlier call was: first the user's own, then
/// where a Buffer was. Nobody may put into what is gone, and every call registers what it finds.
int run_remap(const Arguments& arguments) {
  auto communicator = Communicator::world();
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto bytes = static_cast<std::size_t>(arguments.number("bytes", 4 << 20));
  const std::string prefix = "rank " + std::to_string(communicator.rank());
  Gather gather(communicator, bytes);
  Bytes send(bytes), other(bytes);
  const int files[] = {make_file(ranks * bytes), make_file(ranks * bytes)};

  Span memory = map(files[0], ranks * bytes, nullptr);
  void* const place = memory.data();
  const std::uint64_t first = gather.call(send, memory, "into the first mapping");
  const Bytes result(memory.begin(), memory.end());
  ::munmap(place, memory.size());
  memory = map(files[1], ranks * bytes, place);
  const std::uint64_t second = gather.call(send, memory, "into other memory at the same address");
  ::munmap(place, memory.size());
  memory = map(files[0], ranks * bytes, place);
  require(std::ranges::equal(memory, result), communicator,
          "the second call wrote into memory that was unmapped before");
  ::munmap(place, memory.size());
  // Nothing is registered where everything is copied: one node, or small blocks.
  const bool zero_copy = arguments.number("zero-copy", 1) != 0;
  require((first > 0) == zero_copy && second == first, communicator,
          "the calls registered memory " + std::to_string(first) + " and " +
              std::to_string(second) + " times");

  std::optional buffer(communicator.allocate<unsigned char>(ranks * bytes));
  unsigned char* const of_buffer = buffer->data();
  // The second time all arguments are as in the call before, and as in the one behind.
  for (int turn = 0; turn < 2; ++turn) {
    require(gather.call(other, *buffer, "into a Buffer") <= communicator.rail_statistics().size(),
            communicator, "a Buffer was registered in a call");
  }
  buffer.reset();
  memory = map(files[1], ranks * bytes, of_buffer);
  require(gather.call(other, memory, "where a Buffer was") == first, communicator,
          "memory where a Buffer was is not ordinary");
  ::munmap(of_buffer, memory.size());
  for (const int file : files) ::close(file);
  say(prefix + " remap done");
  return 0;
}

/// Rank `rank` (-1: all) asks for far more than there is, the others for little; then all go on.
/// With memory=node all ask for a NodeBuffer.
int run_too_large(const Arguments& arguments) {
  auto communicator = Communicator::world();
  const auto ranks = static_cast<std::size_t>(communicator.size());
  const auto odd = arguments.number("rank", -1);
  const auto bytes = static_cast<std::size_t>(arguments.number("bytes", 0));
  const std::string prefix = "rank " + std::to_string(communicator.rank());
  const bool greedy = odd < 0 || odd == communicator.rank();
  auto before = communicator.allocate<unsigned char>(1000 * ranks);
  try {
    const std::size_t wanted = greedy ? bytes / sizeof(double) : 100;
    if (arguments.text("memory", "") == "node") {
      auto buffer = communicator.allocate_node_shared<double>(wanted);
    } else {
      auto buffer = communicator.allocate<double>(wanted);
    }
    say(prefix + " error: none");
  } catch (const allrail::Error& error) {
    say(prefix + " error: " + describe(error));
  }
  Gather gather(communicator, 1000);
  auto after = communicator.allocate<unsigned char>(1000 * ranks);
  gather.call(gather.in_place(before), before, "into a Buffer from before");
  gather.call(gather.in_place(after), after, "into a Buffer from after");
  say(prefix + " goes on");
  return 0;
}

}  // namespace probe
