// How far a long run is, on stderr where that is a terminal: a line that the next one overwrites.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace allrail::perf {

class Progress {
 public:
  /// Of a table of so many rows. Only one rank speaks.
  Progress(bool speaks, std::size_t rows);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { erase(); }

  void begin_row(std::string what);
  /// So many calls of the row are done. Not inside what is timed: it may write.
  void calls(int done, int all) {
    if (shows_ && done < all) say_calls(done, all);
  }
  /// Before the row is printed.
  void end_row();

 private:
  void say_calls(int done, int all);
  void say(const std::string& text);
  void erase();

  bool shows_;
  bool is_seen_ = false;
  std::size_t rows_;
  std::size_t done_ = 0;
  std::string what_;
  std::int64_t next_ns_;  // nothing is said before
};

}  // namespace allrail::perf
