// A rank of the next version of Allrail: its card says so, and it reads the others' as that one
// would. Says what collective-probe says of an Error, and ends with its exit code.
#include <chrono>
#include <cstdio>
#include <iostream>

#include "include/allrail/error.hpp"
#include "launcher/bootstrap.hpp"
#include "lib/card.hpp"

int main() {
  using namespace allrail;
  auto bootstrap = launcher::Bootstrap::start(std::chrono::seconds(60));
  Card mine;
  mine.protocol_version = kProtocolVersion + 1;
  mine.library_version = "99.0";
  const auto blobs = bootstrap.exchange(encode(mine));
  try {
    for (std::size_t rank = 0; rank < blobs.size(); ++rank) {
      decode(blobs[rank], static_cast<int>(rank), bootstrap.rank(), mine);
    }
  } catch (const Error& error) {
    // One write for the whole line.
    char line[1024];
    std::snprintf(line, sizeof line, "rank %d error: %s peer %d at 0.0: %s\n", bootstrap.rank(),
                  code_name(error.code()), error.peer(), error.what());
    std::cout << line << std::flush;
    return 42;
  }
  return 0;
}
