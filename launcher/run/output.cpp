#include "launcher/run/output.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

namespace allrail::launcher::run {
namespace {

// A line longer than this is passed on in parts, so that a rank that never writes a newline does
// not fill the memory of the launcher.
constexpr std::size_t kLongestLine = 1 << 20;

bool writable(int fd) {
  pollfd entry{fd, POLLOUT, 0};
  return poll(&entry, 1, 0) > 0;
}

}  // namespace

void Sink::add(std::string_view bytes) {
  if (broken_) return;
  if (at_ == pending_.size()) {
    pending_.clear();
    at_ = 0;
  }
  // From its start to the end of the line.
  if (std::exchange(shows_progress_, false)) pending_ += "\r\033[K";
  pending_ += bytes;
}

void Sink::add_progress(std::string_view tag, std::string_view text) {
  add(tag);
  add(text);
  add("\r");
  shows_progress_ = true;
}

void Sink::flush() {
  // The descriptor is shared with other processes and stays blocking. A pipe that polls as
  // writable takes PIPE_BUF bytes without blocking, so it is given no more than that at once.
  while (!empty() && writable(fd_)) {
    const std::size_t bytes = std::min<std::size_t>(pending_.size() - at_, PIPE_BUF);
    const ssize_t written = write(fd_, pending_.data() + at_, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) return;
    if (written < 0) {
      broken_ = true;
      at_ = pending_.size();
      return;
    }
    at_ += static_cast<std::size_t>(written);
  }
}

Sinks::Sinks() {
  struct stat out {};
  struct stat error {};
  shared_ = fstat(1, &out) == 0 && fstat(2, &error) == 0 && out.st_dev == error.st_dev &&
            out.st_ino == error.st_ino;
}

void Sinks::flush() {
  for (Sink& sink : sinks_) sink.flush();
}

void Sinks::message(std::string_view text) {
  Sink& sink = (*this)[1];
  sink.add("allrail-run: ");
  sink.add(text);
  sink.add("\n");
  sink.flush();
}

void LineCutter::take(std::string_view bytes, Sink& sink) {
  while (!bytes.empty()) {
    const std::size_t end = find_end(bytes);
    if (end == std::string_view::npos) {
      partial_ += bytes;
      if (partial_.size() >= kLongestLine) finish(sink);
      return;
    }
    if (bytes[end] == '\r') {
      partial_ += bytes.substr(0, end);
      sink.add_progress(tag_, std::string_view(partial_).substr(1));
    } else {
      sink.add(tag_);
      sink.add(partial_);
      sink.add(bytes.substr(0, end + 1));
    }
    partial_.clear();
    bytes.remove_prefix(end + 1);
  }
}

/// Where what has begun ends in these bytes, which are some.
std::size_t LineCutter::find_end(std::string_view bytes) const {
  const char first = partial_.empty() ? bytes.front() : partial_.front();
  if (!takes_progress_ || first != '\r') return bytes.find('\n');
  return bytes.find_first_of("\r\n", partial_.empty() ? 1 : 0);
}

void LineCutter::finish(Sink& sink) {
  // Nobody tells of the rest any more.
  if (takes_progress_) sink.erase_progress();
  if (partial_.empty()) return;
  sink.add(tag_);
  sink.add(partial_);
  sink.add("\n");
  partial_.clear();
}

}  // namespace allrail::launcher::run
