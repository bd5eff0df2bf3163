// JSON in which every value knows its line, so that whoever finds it wrong can say where it stands.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace allrail {

struct JsonValue {
  enum class Kind { Null, Boolean, Number, Text, List, Object };
  Kind kind = Kind::Null;
  int line = 0;      // that it begins in, from 1
  std::string name;  // of a member of an object: what it is called there
  int name_line = 0;
  std::string text;  // of a Text; of other simple values as messages show it
  std::optional<double> number;
  std::optional<std::uint64_t> whole;  // of a number that is whole and not negative
  std::vector<JsonValue> items;        // of a list, or the members of an object, in their order

  /// The member of that name, or null.
  const JsonValue* find(std::string_view member) const;
};

/// What a value is, for messages: "a list", "the text 'ring'", "the number -3".
std::string describe(const JsonValue& value);

/// A text of a file in a message: on one line, and no longer than a message can be.
std::string shown(std::string_view text);

/// Where a text comes from, for messages.
struct TextOrigin {
  std::string setting;  // that names the file
  std::string file;
};

/// Throws Error{BadConfiguration} "SETTING: FILE:LINE: text".
[[noreturn]] void fail_at(const TextOrigin& origin, int line, const std::string& text);

/// Standard JSON: no comments, no comma behind the last value, no name twice in an object.
/// @throws Error{BadConfiguration} with the line of what cannot be read.
JsonValue parse_json(std::string_view text, const TextOrigin& origin);

}  // namespace allrail
