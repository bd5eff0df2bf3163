// The entry points that libFuzzer calls.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/fuzz/fuzz.hpp"

namespace allrail::fuzz {

void require(bool holds, const char* sentence) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", sentence);
  std::abort();
}

namespace {

void write_seeds(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  int number = 0;
  for (const Bytes& seed : seeds()) {
    std::ofstream file(folder / ("seed-" + std::to_string(number++)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(seed.data()),
               static_cast<std::streamsize>(seed.size()));
    require(file.good(), "a seed can be written");
  }
  require(number > 0, "there are seeds");
}

}  // namespace
}  // namespace allrail::fuzz

extern "C" int LLVMFuzzerInitialize(const int* count, char*** arguments) {
  if (*count == 3 && std::string_view((*arguments)[1]) == "--write-seeds") {
    allrail::fuzz::write_seeds((*arguments)[2]);
    std::exit(0);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t bytes) {
  allrail::fuzz::fuzz_one(std::as_bytes(std::span(data, bytes)));
  return 0;
}
