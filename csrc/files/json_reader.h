// A streaming (pull) parser for JSON. It neither recurses nor builds a tree: it stores one string, and one bit per
// level.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace imp {

struct JsonRules {
  Reason form;                  // for malformed JSON
  Reason string;                // for a string that is not UTF-8 or has a control character or a lone surrogate
  std::size_t max_depth;        // deeper nesting is MODEL_LIMIT
  bool has_non_finite = false;  // numbers may be Infinity, -Infinity and NaN, as Python writes them
};

enum class JsonEvent : std::uint8_t {
  BEGIN_OBJECT,
  END_OBJECT,
  BEGIN_ARRAY,
  END_ARRAY,
  KEY,
  STRING,
  NUMBER,
  TRUE,
  FALSE,
  NONE,  // null
  END,   // of the text; only white space may follow the value
};

// Strict RFC 8259: no comments, no trailing commas, no NaN, no byte order mark. Errors are ModelError.
class JsonReader {
 public:
  // `text` must outlive the reader. `where` begins every message.
  JsonReader(std::string_view text, std::string where, JsonRules rules)
      : text_(text), where_(std::move(where)), rules_(rules) {}

  // Returns the events of one value, then END forever.
  JsonEvent next();
  // The string of a KEY or STRING, with escapes resolved, or the digits of a NUMBER.
  const std::string& value() const noexcept { return value_; }

  // `<where>: byte <n>, after "<last key>": <message>` with rules.form.
  [[noreturn]] void fail(const std::string& message) const { fail(rules_.form, message); }
  [[noreturn]] void fail(Reason reason, const std::string& message) const;
  // The next event, which must be `expected`; errors name `what`.
  void expect(JsonEvent expected, std::string_view what);
  // Rejects a text that is nested too deeply, before anything is read. next() finds this too, but errors in the text
  // before that place come first.
  void check_depth() const;
  // Skips the rest of the value that began with `first`.
  void skip(JsonEvent first);

 private:
  enum class State : std::uint8_t { VALUE, FIRST_VALUE, FIRST_KEY, KEY, AFTER_VALUE };

  [[noreturn]] void refuse_depth() const;
  JsonEvent value_event(bool may_close_array);
  JsonEvent key_event(bool may_close_object);
  JsonEvent after_value();
  JsonEvent open(bool is_object);
  JsonEvent close();
  JsonEvent literal(std::string_view word, JsonEvent event);
  bool non_finite();  // takes the number, if it is none of JSON's
  JsonEvent number();
  void digits();
  void string();
  void escape();
  std::uint32_t hex4();
  void append_character(std::uint32_t code_point);
  void skip_space() noexcept;
  bool take(char c) noexcept;
  char peek() const noexcept { return position_ < text_.size() ? text_[position_] : '\0'; }

  std::string_view text_;
  std::string where_;
  JsonRules rules_;
  std::size_t position_ = 0;
  State state_ = State::VALUE;
  std::vector<bool> in_object_;  // the containers at the current position, outermost first
  std::string value_;
  std::string last_key_;
};

// A JSON number that is a plain integer from 0 to 2^64 - 1: no sign, no fraction, no exponent.
std::optional<std::uint64_t> json_unsigned(std::string_view number) noexcept;

}  // namespace imp
