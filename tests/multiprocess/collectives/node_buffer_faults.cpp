// Modes in which ranks differ about NodeBuffers, or one of them ends too early.
#include <functional>
#include <map>
#include <optional>

#include "tests/multiprocess/collectives/probe_support.hpp"

namespace probe {
namespace {

using allrail::Communicator;
using allrail::NodeBuffer;
using allrail::Plan;
using Span = std::span<unsigned char>;

struct Case {
  Communicator communicator;
  bool odd;  // this rank does it differently
  std::size_t bytes;
  std::optional<NodeBuffer<unsigned char>> first, second;
  std::vector<unsigned char> send;

  std::size_t total() const { return bytes * static_cast<std::size_t>(communicator.size()); }
  Span part(std::size_t offset) { return Span(*first).subspan(offset, total()); }
};

using Table = std::map<std::string, std::function<void(Case&)>>;

const Table& cases() {
  static const Table kTable = {
      {"another-buffer",
       [](Case& c) {
         const Span receive = c.odd ? Span(*c.second) : Span(*c.first);
         c.communicator.allgather(c.send, receive.first(c.total()));
       }},
      {"another-offset", [](Case& c) { c.communicator.allgather(c.send, c.part(c.odd ? 8 : 16)); }},
      {"ordinary-memory",
       [](Case& c) {
         std::vector<unsigned char> ordinary(c.total());
         c.odd ? c.communicator.allgather(c.send, ordinary)
               : c.communicator.allgather(c.send, c.part(0));
       }},
      {"a-buffer",
       [](Case& c) {
         auto buffer = c.communicator.allocate<unsigned char>(c.total());
         c.odd ? c.communicator.allgather(c.send, buffer)
               : c.communicator.allgather(c.send, c.part(0));
       }},
      {"other-displacements",
       [](Case& c) {
         const auto ranks = static_cast<std::size_t>(c.communicator.size());
         const std::vector<std::size_t> counts(ranks, c.bytes);
         std::vector<std::size_t> places;
         for (std::size_t i = 0; i < ranks; ++i) places.push_back(i * c.bytes);
         if (c.odd) std::swap(places[0], places[1]);
         c.communicator.allgatherv(c.send, c.part(0), counts, places);
       }},
      {"count",
       [](Case& c) {
         c.communicator.allocate_node_shared<unsigned char>(c.odd ? c.bytes + 1 : c.bytes);
       }},
      {"allocate",
       [](Case& c) {
         if (c.odd) {
           c.communicator.allocate<unsigned char>(c.bytes);
         } else {
           c.communicator.allocate_node_shared<unsigned char>(c.bytes);
         }
       }},
      {"gone-while-idle",
       [](Case& c) {
         Plan plan = c.communicator.plan_allgather(c.send, c.part(0));
         plan.start();
         plan.wait();
         if (c.odd) c.first.reset();
         c.communicator.barrier();
         plan.start();
         plan.wait();
       }},
      {"gone-while-it-runs",
       [](Case& c) {
         Plan plan = c.communicator.plan_allgather(c.send, c.part(0));
         plan.start();
         if (c.odd) c.first.reset();  // the others have started it, or will soon
         plan.wait();
         c.communicator.barrier();
         plan.start();
         plan.wait();
       }},
  };
  return kTable;
}

}  // namespace

int run_node_buffer_faults(const Arguments& arguments) {
  Case context{Communicator::world(), false, 0, {}, {}, {}};
  Communicator& communicator = context.communicator;
  context.odd = communicator.rank() == arguments.number("rank", 1);
  context.bytes = static_cast<std::size_t>(arguments.number("bytes", 1000));
  context.first = communicator.allocate_node_shared<unsigned char>(context.total() + 64);
  context.second = communicator.allocate_node_shared<unsigned char>(context.total() + 64);
  context.send.resize(context.bytes);
  communicator.allgather(context.send, context.part(0));
  communicator.barrier();
  sleep_seconds(0.1);  // an Error of another rank could end the barrier of this one
  const std::string prefix = "rank " + std::to_string(communicator.rank());
  const double began = now_seconds();
  bool failed = false;
  for (const char* turn : {" error: ", " again: "}) {
    try {
      turn[1] == 'e' ? cases().at(arguments.text("case", ""))(context) : communicator.barrier();
      say(prefix + turn + "none");
    } catch (const allrail::Error& error) {
      failed = true;
      say(prefix + turn + describe(error));
    }
    if (turn[1] == 'e') say(prefix + " after " + std::to_string(now_seconds() - began));
  }
  return failed ? kErrorCode : 0;
}

}  // namespace probe
