#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "coll/schedule/exchange.hpp"

// What gathers, scatters and broadcasts are made of.
namespace allrail::schedule {

/// A level of the spanning binomial tree for k ports (Qian and Afsahi 2008, 5.1.1): participants
/// are numbered to base k + 1, and 0 is the root. Subtrees have up to `size` participants, and
/// `ports` of them come under a parent. A subtree is a run of participants from its top on.
struct TreeLevel {
  int participants;
  int ports;
  long long size;  // 64 bits: size * (ports + 1) may pass the end of int after the last level

  long long above() const { return size * (ports + 1); }
  int subtree(int top) const {
    return static_cast<int>(std::min<long long>(size, participants - top));
  }
  bool is_parent(int one) const { return one % above() == 0; }
  bool is_child(int one) const { return one % size == 0 && !is_parent(one); }
  /// Its place among the children of its parent.
  int port_of(int child) const { return static_cast<int>(child % above() / size) - 1; }
  int parent_of(int child) const { return static_cast<int>(child - child % above()); }
  template <class Visit>
  void for_children_of(int parent, const Visit& visit) const {
    const long long end = std::min<long long>(parent + above(), participants);
    for (long long child = parent + size; child < end; child += size) {
      visit(static_cast<int>(child));
    }
  }
};

/// For an element of what follows.
constexpr std::size_t at(int index) { return static_cast<std::size_t>(index); }

/// A tree of participants as data. Places stand in the order of a walk from the root down, so that
/// the root has place 0 and a subtree is a run of places from its top on.
struct Tree {
  std::vector<int> order;   // the participant at every place
  std::vector<int> parent;  // by place: that of the parent; -1: the root
  std::vector<int> size;    // by place: participants of its subtree
  std::vector<int> round;   // by place: in which it sends to its parent, after all its children
  int rounds = 0;
};
/// What `place` does so that place 0 has all blocks in the end, each of the participant at a place.
Exchange gather_up(const Tree& tree, int place);

/// Up a spanning binomial tree to participant 0, which has all blocks in the end. In step i those
/// with i trailing zero digits, and a digit i that is not zero, send what their subtree gathered to
/// the participant with that digit zero.
Exchange gather_up_tree(int participants, int me, int ports);
/// Everybody sends its block to participant 0: in step i those numbered i*k + 1 to i*k + k.
Exchange gather_at_root(int participants, int me, int ports);
/// The exchange backwards: what was put is awaited. Turns a gather into a scatter.
Exchange mirrored(const Exchange& exchange);

}  // namespace allrail::schedule
