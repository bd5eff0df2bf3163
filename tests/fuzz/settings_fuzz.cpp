// Settings from the environment: a value is refused with the variable's name, or what it means can
// be written down and read again.
#include <cstdlib>
#include <string>

#include "include/allrail/error.hpp"
#include "include/allrail/options.hpp"
#include "lib/base/parse.hpp"
#include "tests/fuzz/fuzz.hpp"

namespace allrail::fuzz {
namespace {

const std::vector<Setting>& known() {
  static const std::vector<Setting> all = describe_settings(Options());
  return all;
}

/// A variable for as long as the object lives. putenv(3) keeps no copy, so nothing piles up.
class Variable {
 public:
  Variable(const std::string& name, const std::string& value)
      : name_(name), text_(name + "=" + value) {
    require(::putenv(text_.data()) == 0, "a variable can be set");
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { ::unsetenv(name_.c_str()); }

 private:
  std::string name_;
  std::string text_;
};

void check_parsers(const std::string& text) {
  std::string joined;
  for (const std::string& part : base::split(text, ',')) joined += part + ",";
  require(joined.empty() ? text.empty() : joined == text + ",", "parts join to the text");
  if (const auto bytes = base::parse_bytes(text)) {
    require(base::parse_bytes(base::format_bytes(*bytes)) == bytes, "sizes are written and read");
  }
  if (const auto duration = base::parse_duration(text)) {
    require(duration->count() >= 0, "no duration is negative");
  }
}

void check_setting(const Setting& setting, const std::string& value) {
  Options options;
  try {
    const Variable variable(setting.name, value);
    options = Options::from_environment();
  } catch (const Error& error) {
    require(error.code() == Code::BadConfiguration &&
                std::string_view(error.what()).find(setting.name) != std::string_view::npos,
            "what is refused is named");
    return;
  }
  for (const Setting& shown : describe_settings(options)) {
    const Variable variable(shown.name, shown.value);
    const Options again = Options::from_environment();
    for (const Setting& read : describe_settings(again)) {
      require(read.name != shown.name || read.value == shown.value,
              "what is shown means the same when it is read");
    }
  }
}

}  // namespace

/// An input is the number of a setting and its value.
std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  const char* const values[] = {"auto",          "0",     "64",        "1.5s",     "500ms", "2m",
                                "64K",           "8M",    "1G",        "cyclic:2", "copy",  "rail",
                                "error,summary", "^eth0", "eth0,eth1", "65535"};
  for (std::size_t i = 0; i < known().size(); ++i) {
    for (const std::string& value :
         {known()[i].value, std::string(values[i % std::size(values)])}) {
      Bytes seed = bytes_of(value);
      seed.insert(seed.begin(), static_cast<std::byte>(i));
      all.push_back(std::move(seed));
    }
  }
  for (const char* const value : values) {
    Bytes seed = bytes_of(value);
    seed.insert(seed.begin(), static_cast<std::byte>(all.size()));
    all.push_back(std::move(seed));
  }
  return all;
}

void fuzz_one(std::span<const std::byte> input) {
  Choices choices(input);
  const Setting& setting = known()[choices.below(known().size())];
  std::string text(text_of(choices.rest()));
  text = text.substr(0, text.find('\0'));  // no variable holds more
  check_parsers(text);
  check_setting(setting, text);
}

}  // namespace allrail::fuzz
