// The small paths whose instructions and system calls are counted: calls of rank 0 that need not
// wait, since whatever they would wait for is there before they begin.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace allrail::counts {

/// One kind of call. A turn is enter(), call(), leave(); call() alone is counted.
class Path {
 public:
  virtual ~Path() = default;
  virtual std::string name() const = 0;
  /// The other ranks enter the call, and do all of it that they can.
  virtual void enter() = 0;
  /// Rank 0 makes the call.
  virtual void call() = 0;
  /// The other ranks end theirs. False: a rank has received a wrong byte.
  virtual bool leave() = 0;
};

using Paths = std::vector<std::unique_ptr<Path>>;

/// What `sender` sends in a turn.
inline std::byte content(int sender, int turn) {
  return static_cast<std::byte>(sender * 50 + turn % 50 + 1);
}

/// One node, through the public API: everything between the call and its return.
void add_node_paths(Paths& paths);
/// Two nodes, from the engine down to rails that are fake: plan and arguments are there already.
void add_over_nodes_paths(Paths& paths);

}  // namespace allrail::counts
