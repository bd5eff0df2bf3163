#pragma once

#include <cstdint>
#include <vector>

#include "coll/schedule/model.hpp"
#include "coll/schedule/shape.hpp"

// What puts pass on their way: the rail that sends them, between leaf switches a way up and a way
// down, and the rail that receives them. Each serves one piece after the other. The head of a piece
// goes on as soon as it is served (cut-through), and its tail is never faster than the slowest part
// of the way. Nothing that is waited for holds up what is before it. Used by evaluate.cpp only.
namespace allrail::schedule {

/// What of a put travels on one rail.
struct Piece {
  std::uint32_t message = 0;
  std::int32_t from = 0;  // rank, as within the cell
  std::int32_t to = 0;
  std::uint8_t rail = 0;
  bool crosses = false;  // to another leaf switch
  bool goes_on = false;  // its transfer has had its start-up
  double bytes = 0;
  double tail_s = 0;  // when its last byte leaves where it is
};

class Network {
 public:
  Network(const NodeMap& map, const Model& model);

  int leaf_of(int node) const { return leaf_of_[static_cast<std::size_t>(node)]; }

  // In the order of time. Each returns when the head of the piece reaches what comes next.
  double send(Piece& piece, double now);
  double climb(Piece& piece, double now);    // the way up, of a piece that crosses
  double descend(Piece& piece, double now);  // the way down
  /// Returns when all of the piece has landed.
  double receive(Piece& piece, double now);

 private:
  /// When something that takes `duration` begins.
  static double serve(double& free, double now, double duration);
  struct Way {
    double s_per_byte = 0;                     // of a cable
    std::vector<double> climbing, descending;  // when each cable is free again
  };
  Way way_of(int nodes) const;
  std::size_t owner(int rank) const;
  double& sending_rail(const Piece& piece);
  double& receiving_rail(const Piece& piece);
  double far(const Piece& piece) const;
  double pass(std::vector<double>& cables, double s_per_byte, Piece& piece, double now) const;
  Way& way_of_rank(int rank);

  const NodeMap& map_;
  const Model& model_;
  std::vector<int> leaf_of_;  // by node
  std::vector<Way> ways_;     // by leaf
  std::vector<double> sending_,
      receiving_;  // when each rail is free again, by owner * rails + rail
};

}  // namespace allrail::schedule
