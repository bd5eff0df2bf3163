#include "lib/json_lines.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "lib/base/error.hpp"

namespace allrail {
namespace {

// Nothing that is read this way is deeper; a bound keeps recursion over what was read harmless.
constexpr std::size_t kMostDepth = 16;
// Of a text that a message repeats: messages travel to other ranks.
constexpr std::size_t kMostShownBytes = 200;

/// Counts the lines of what the parser has taken so far.
struct Cursor {
  int line = 1;            // of the last character taken
  bool line_ends = false;  // that character ended its line

  void take(char character) {
    if (line_ends) ++line;
    line_ends = character == '\n';
  }
};

/// Hands characters to the parser and tells the cursor. The parser reports a value when it has read
/// its last character, or, of a number, the one behind it; since no simple value spans lines and a
/// line end counts as part of the line that it ends, the cursor is in the value's line then.
class CountingIterator {
 public:
  // NOLINTBEGIN(readability-identifier-naming): the names that std::iterator_traits looks for.
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;
  // NOLINTEND(readability-identifier-naming)

  CountingIterator(const char* at, Cursor& cursor) : at_(at), cursor_(&cursor) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    cursor_->take(*at_++);
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }

 private:
  const char* at_;
  Cursor* cursor_;
};

/// The library's sentence without its own prefix and its count of lines and columns.
std::string plain_words(std::string_view what) {
  const auto bracket = what.find("] ");
  if (what.starts_with('[') && bracket != std::string_view::npos) what.remove_prefix(bracket + 2);
  const auto column = what.find(", column ");
  const auto colon = what.find(": ", column == std::string_view::npos ? 0 : column);
  if (column != std::string_view::npos && colon != std::string_view::npos) {
    what.remove_prefix(colon + 2);
  }
  return std::string(what);
}

/// Builds the values out of the parser's events.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const Cursor& cursor, const TextOrigin& origin) : cursor_(cursor), origin_(origin) {}

  JsonValue take_result() { return std::move(root_); }

  bool null() override { return add_simple(JsonValue::Kind::Null, "null"); }
  bool boolean(bool value) override {
    return add_simple(JsonValue::Kind::Boolean, value ? "true" : "false");
  }
  bool number_integer(number_integer_t value) override {
    add(JsonValue::Kind::Number, fmt::format("{}", value)).number = static_cast<double>(value);
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    JsonValue& added = add(JsonValue::Kind::Number, fmt::format("{}", value));
    added.whole = value;
    added.number = static_cast<double>(value);
    return true;
  }
  bool number_float(number_float_t value, const string_t& text) override {
    add(JsonValue::Kind::Number, text).number = value;
    return true;
  }
  bool string(string_t& value) override { return add_simple(JsonValue::Kind::Text, value); }
  bool binary(binary_t& /*value*/) override { return false; }  // not in a text
  bool start_object(std::size_t /*elements*/) override { return open(JsonValue::Kind::Object); }
  bool start_array(std::size_t /*elements*/) override { return open(JsonValue::Kind::List); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override {
    if (open_.back()->find(value) != nullptr) {
      fail_at(origin_, cursor_.line, fmt::format("'{}' stands twice in one object", shown(value)));
    }
    name_ = value;
    name_line_ = cursor_.line;
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::json::exception& error) override {
    fail_at(origin_, cursor_.line, "this is no JSON: " + shown(plain_words(error.what())));
  }

 private:
  JsonValue& add(JsonValue::Kind kind, std::string text) {
    JsonValue& value = open_.empty() ? root_ : open_.back()->items.emplace_back();
    value.kind = kind;
    value.line = cursor_.line;
    value.name = std::move(name_);
    value.name_line = name_line_;
    value.text = std::move(text);
    name_.clear();
    return value;
  }
  bool add_simple(JsonValue::Kind kind, std::string text) {
    add(kind, std::move(text));
    return true;
  }

  bool open(JsonValue::Kind kind) {
    if (open_.size() == kMostDepth) {
      fail_at(origin_, cursor_.line,
              fmt::format("values are nested in more than {} others", kMostDepth));
    }
    open_.push_back(&add(kind, ""));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const Cursor& cursor_;
  const TextOrigin& origin_;
  JsonValue root_;
  std::string name_;  // of the member whose value comes next
  int name_line_ = 0;
  std::vector<JsonValue*> open_;  // lists and objects, outermost first; only the last one grows
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view member) const {
  const auto found = std::ranges::find(items, member, &JsonValue::name);
  return found == items.end() ? nullptr : &*found;
}

std::string shown(std::string_view text) {
  std::size_t bytes = std::min(text.size(), kMostShownBytes);
  // Not in the middle of a character of UTF-8.
  while (bytes < text.size() && bytes > 0 && (text[bytes] & 0xC0) == 0x80) --bytes;
  std::string result(text.substr(0, bytes));
  const auto is_control = [](char character) {
    return static_cast<unsigned char>(character) < 0x20 || character == 0x7F;
  };
  std::ranges::replace_if(result, is_control, '?');
  return bytes < text.size() ? result + "..." : result;
}

std::string describe(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::Null:
    case JsonValue::Kind::Boolean:
      return value.text;
    case JsonValue::Kind::Number:
      return "the number " + shown(value.text);
    case JsonValue::Kind::Text:
      return "the text '" + shown(value.text) + "'";
    case JsonValue::Kind::List:
      return "a list";
    case JsonValue::Kind::Object:
      return "an object";
  }
  return "?";
}

void fail_at(const TextOrigin& origin, int line, const std::string& text) {
  base::fail(Code::BadConfiguration, "{}: {}:{}: {}", origin.setting, origin.file, line, text);
}

JsonValue parse_json(std::string_view text, const TextOrigin& origin) {
  Cursor cursor;
  Builder builder(cursor, origin);
  const CountingIterator begin(text.data(), cursor);
  const CountingIterator end(text.data() + text.size(), cursor);
  if (!nlohmann::json::sax_parse(begin, end, &builder)) {
    fail_at(origin, cursor.line, "this is no JSON");
  }
  return builder.take_result();
}

}  // namespace allrail
