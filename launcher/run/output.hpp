// Output of the ranks, line by line: a line of one rank is never mixed with another's.
#pragma once

#include <array>
#include <deque>
#include <string>
#include <string_view>

namespace allrail::launcher::run {

/// Where lines go: standard output or standard error of the launcher. It never blocks for long:
/// what the reader does not take yet is kept, and the ranks are not read while it is too much.
class Sink {
 public:
  explicit Sink(int fd) : fd_(fd) {}
  int fd() const noexcept { return fd_; }
  void add(std::string_view bytes);
  /// A line that whatever comes next takes the place of, on a terminal.
  void add_progress(std::string_view tag, std::string_view text);
  void erase_progress() { add(""); }
  /// Writes what the descriptor takes now.
  void flush();
  bool empty() const noexcept { return at_ == pending_.size(); }
  bool full() const noexcept { return pending_.size() - at_ > kMostPending; }
  /// The reader has gone (EPIPE); everything is dropped from then on.
  bool broken() const noexcept { return broken_; }

 private:
  static constexpr std::size_t kMostPending = 1 << 20;
  int fd_;
  std::string pending_;
  std::size_t at_ = 0;
  bool broken_ = false;
  bool shows_progress_ = false;
};

/// Standard output and standard error. They share one sink when they are the same file, so that
/// a line of one is not cut by a line of the other.
class Sinks {
 public:
  Sinks();
  Sink& operator[](int stream) noexcept { return shared_ ? sinks_[0] : sinks_[stream]; }
  void flush();
  bool empty() const noexcept { return sinks_[0].empty() && sinks_[1].empty(); }
  bool full() const noexcept { return sinks_[0].full() || sinks_[1].full(); }
  /// Prints "allrail-run: <text>" on standard error, behind what is already there.
  void message(std::string_view text);

 private:
  std::array<Sink, 2> sinks_{Sink(1), Sink(2)};
  bool shared_ = false;
};

/// Cuts the bytes of one stream of one rank into lines. What stands between two carriage returns,
/// the first of them where a line begins, is progress.
class LineCutter {
 public:
  /// Without `takes_progress`, where no terminal shows it, that is part of a line like any other.
  LineCutter(std::string tag, bool takes_progress)
      : tag_(std::move(tag)), takes_progress_(takes_progress) {}
  /// Passes on all whole lines, and progress.
  void take(std::string_view bytes, Sink& sink);
  /// The stream has ended: passes on a last line without a newline, with one.
  void finish(Sink& sink);

 private:
  std::size_t find_end(std::string_view bytes) const;

  std::string tag_;
  bool takes_progress_;
  std::string partial_;
};

}  // namespace allrail::launcher::run
