// A rank for the tests of the launcher: joins the job, exchanges blobs and checks every byte of
// them, then does what its arguments say, in order:
//   exit:CODE kill:SIGNAL sleep:MS abort:CODE print:TEXT env:NAME cat lines:COUNT spin
//   child:MS daemon:MS trap:SIGNAL report  (each may have a "RANK@" in front: only that rank)
// Before them: --skip-bootstrap, --delay MS, --timeout MS, --exchanges COUNT.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include "include/allrail/error.hpp"
#include "launcher/bootstrap.hpp"

namespace {

using allrail::launcher::Bootstrap;

struct Settings {
  bool bootstrap = true;
  int delay_ms = 0;
  int timeout_ms = 20'000;
  int exchanges = 1;
  std::vector<std::string> actions;
};

Settings parse(int argc, char** argv) {
  Settings settings;
  for (int at = 1; at < argc; ++at) {
    const std::string_view text = argv[at];
    const auto number = [&] { return std::atoi(argv[++at]); };
    if (text == "--skip-bootstrap") {
      settings.bootstrap = false;
    } else if (text == "--delay") {
      settings.delay_ms = number();
    } else if (text == "--timeout") {
      settings.timeout_ms = number();
    } else if (text == "--exchanges") {
      settings.exchanges = number();
    } else {
      settings.actions.emplace_back(text);
    }
  }
  return settings;
}

/// The blob of a rank: a length and a content that only this rank and round have; every fifth one
/// is empty.
std::vector<std::byte> make_blob(int rank, int round) {
  const std::size_t bytes = rank % 5 == 4 ? 0 : 3000 + static_cast<std::size_t>(rank);
  std::vector<std::byte> blob(bytes);
  for (std::size_t at = 0; at < bytes; ++at) {
    blob[at] = static_cast<std::byte>(at * 7 + static_cast<std::size_t>(rank * 31 + round * 101));
  }
  return blob;
}

bool exchange_and_check(Bootstrap& bootstrap, int round) {
  const auto blobs = bootstrap.exchange(make_blob(bootstrap.rank(), round));
  if (blobs.size() != static_cast<std::size_t>(bootstrap.size())) return false;
  for (int of = 0; of < bootstrap.size(); ++of) {
    if (blobs[static_cast<std::size_t>(of)] != make_blob(of, round)) {
      fmt::print("WRONG blob of rank {} at rank {}\n", of, bootstrap.rank());
      return false;
    }
  }
  return true;
}

void print_now(const std::string& text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const ssize_t written = write(1, text.data() + at, text.size() - at);
    if (written <= 0) _exit(3);
    at += static_cast<std::size_t>(written);
  }
}

void copy_input() {
  char bytes[4096];
  for (ssize_t got = 0; (got = read(0, bytes, sizeof bytes)) > 0;) {
    print_now(std::string(bytes, static_cast<std::size_t>(got)));
  }
}

void on_trapped(int number) { print_now(fmt::format("caught {}\n", number)); }

void sleep_ms(int ms) {
  // A caught signal does not cut the sleep short.
  timespec left{ms / 1000, (ms % 1000) * 1'000'000L};
  while (nanosleep(&left, &left) != 0) {
  }
}

void start_child(int ms, bool escape) {
  if (fork() != 0) return;
  if (escape) setsid();
  sleep_ms(ms);
  _exit(0);
}

void print_lines(int rank, int count) {
  for (int line = 0; line < count; ++line) {
    // Written in two parts, so that lines of several ranks would mix without the launcher.
    const std::string body(static_cast<std::size_t>(20 + line * 13 % 9000),
                           static_cast<char>('a' + rank % 26));
    print_now(fmt::format("<{} {} {}", rank, line, body));
    print_now(">\n");
  }
}

void act(const std::string& action, int rank, std::optional<Bootstrap>& bootstrap) {
  const std::size_t colon = action.find(':');
  const std::string name = action.substr(0, colon);
  const std::string value = colon == std::string::npos ? "" : action.substr(colon + 1);
  const int number = std::atoi(value.c_str());
  if (name == "exit") _exit(number);
  if (name == "kill") kill(getpid(), number);
  if (name == "sleep") sleep_ms(number);
  if (name == "print") print_now(value);
  if (name == "cat") copy_input();
  if (name == "lines") print_lines(rank, number);
  if (name == "child") start_child(number, false);
  if (name == "daemon") start_child(number, true);
  if (name == "trap") signal(number, on_trapped);
  if (name == "finalize") bootstrap.reset();
  if (name == "abort") {
    bootstrap->abort(number, "the probe was told to");
    sleep_ms(60'000);
  }
  if (name == "env") {
    const char* found = std::getenv(value.c_str());
    print_now(fmt::format("{}={}\n", value, found != nullptr ? found : "(unset)"));
  }
  if (name == "report") {
    std::string locals;
    for (const int local : bootstrap->local_ranks()) locals += fmt::format(" {}", local);
    print_now(fmt::format("rank {} of {} job {} launcher {} local{}\n", rank, bootstrap->size(),
                          bootstrap->job_name(), bootstrap->has_launcher(), locals));
  }
}

int run(const Settings& settings) {
  sleep_ms(settings.delay_ms);
  std::optional<Bootstrap> bootstrap;
  int rank = -1;
  if (settings.bootstrap) {
    bootstrap = Bootstrap::start(std::chrono::milliseconds(settings.timeout_ms));
    rank = bootstrap->rank();
    for (int round = 0; round < settings.exchanges; ++round) {
      if (!exchange_and_check(*bootstrap, round)) return 9;
    }
  } else if (const char* text = std::getenv("PMIX_RANK")) {
    rank = std::atoi(text);
  }
  for (const std::string& entry : settings.actions) {
    const std::size_t at = entry.find('@');
    if (at == std::string::npos) {
      act(entry, rank, bootstrap);
    } else if (std::atoi(entry.c_str()) == rank) {
      act(entry.substr(at + 1), rank, bootstrap);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const allrail::Error& error) {
    fmt::print(stderr, "ERROR {} {}\n", allrail::code_name(error.code()), error.what());
    return 5;
  }
}
