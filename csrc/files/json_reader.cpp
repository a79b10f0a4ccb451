// A state machine that returns one event per step.
#include "files/json_reader.h"

#include <charconv>

#include "base/printable.h"
#include "base/utf8.h"

namespace imp {

void JsonReader::fail(Reason reason, const std::string& message) const {
  std::string text = where_ + ": byte " + std::to_string(position_);
  if (!last_key_.empty()) text += ", after \"" + printable(last_key_) + '"';
  throw ModelError(reason, text + ": " + message);
}

void JsonReader::expect(JsonEvent expected, std::string_view what) {
  if (next() != expected) fail("expected " + std::string(what));
}

void JsonReader::check_depth() const {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text_.size(); ++i) {
    const char c = text_[i];
    if (c == '"') in_string = !in_string;
    if (in_string) {
      if (c == '\\') ++i;
      continue;
    }
    if ((c == '}' || c == ']') && depth > 0) --depth;
    if ((c == '{' || c == '[') && ++depth > rules_.max_depth) refuse_depth();
  }
}

void JsonReader::refuse_depth() const {
  fail(Reason::MODEL_LIMIT, "nested deeper than " + std::to_string(rules_.max_depth) + " levels");
}

void JsonReader::skip(JsonEvent first) {
  std::size_t depth = 0;
  for (JsonEvent event = first;; event = next()) {
    if (event == JsonEvent::BEGIN_OBJECT || event == JsonEvent::BEGIN_ARRAY) ++depth;
    if (event == JsonEvent::END_OBJECT || event == JsonEvent::END_ARRAY) --depth;
    if (depth == 0) return;
  }
}

JsonEvent JsonReader::next() {
  skip_space();
  switch (state_) {
    case State::VALUE:
      return value_event(false);
    case State::FIRST_VALUE:
      return value_event(true);
    case State::KEY:
      return key_event(false);
    case State::FIRST_KEY:
      return key_event(true);
    case State::AFTER_VALUE:
      break;
  }
  return after_value();
}

JsonEvent JsonReader::after_value() {
  if (in_object_.empty()) {
    if (position_ != text_.size()) fail("text after the value, expected the end");
    return JsonEvent::END;
  }
  const bool object = in_object_.back();
  if (take(object ? '}' : ']')) return close();
  if (!take(',')) fail(object ? "expected , or }" : "expected , or ]");
  skip_space();
  return object ? key_event(false) : value_event(false);
}

JsonEvent JsonReader::key_event(bool may_close_object) {
  if (may_close_object && take('}')) return close();
  if (!take('"')) fail("expected a name in quotes");
  string();
  last_key_ = value_;
  skip_space();
  if (!take(':')) fail("expected :");
  state_ = State::VALUE;
  return JsonEvent::KEY;
}

JsonEvent JsonReader::value_event(bool may_close_array) {
  if (may_close_array && take(']')) return close();
  state_ = State::AFTER_VALUE;
  switch (peek()) {
    case '{':
      return open(true);
    case '[':
      return open(false);
    case '"':
      ++position_;
      string();
      return JsonEvent::STRING;
    case 't':
      return literal("true", JsonEvent::TRUE);
    case 'f':
      return literal("false", JsonEvent::FALSE);
    case 'n':
      return literal("null", JsonEvent::NONE);
    default:
      return rules_.has_non_finite && non_finite() ? JsonEvent::NUMBER : number();
  }
}

bool JsonReader::non_finite() {
  for (const std::string_view word : {"Infinity", "-Infinity", "NaN"}) {
    if (!text_.substr(position_).starts_with(word)) continue;
    position_ += word.size();
    value_ = word;
    return true;
  }
  return false;
}

JsonEvent JsonReader::open(bool is_object) {
  if (in_object_.size() == rules_.max_depth) refuse_depth();
  ++position_;
  in_object_.push_back(is_object);
  state_ = is_object ? State::FIRST_KEY : State::FIRST_VALUE;
  return is_object ? JsonEvent::BEGIN_OBJECT : JsonEvent::BEGIN_ARRAY;
}

JsonEvent JsonReader::close() {
  const bool object = in_object_.back();
  in_object_.pop_back();
  state_ = State::AFTER_VALUE;
  return object ? JsonEvent::END_OBJECT : JsonEvent::END_ARRAY;
}

JsonEvent JsonReader::literal(std::string_view word, JsonEvent event) {
  if (text_.substr(position_, word.size()) != word) fail("expected a value");
  position_ += word.size();
  return event;
}

void JsonReader::digits() {
  const std::size_t begin = position_;
  while (peek() >= '0' && peek() <= '9') ++position_;
  if (position_ == begin) fail("expected a value");
}

JsonEvent JsonReader::number() {
  const std::size_t begin = position_;
  take('-');
  if (!take('0')) digits();
  if (take('.')) digits();
  if (take('e') || take('E')) {
    if (!take('+')) take('-');
    digits();
  }
  value_ = text_.substr(begin, position_ - begin);
  return JsonEvent::NUMBER;
}

// From after the opening quote to after the closing one.
void JsonReader::string() {
  value_.clear();
  while (!take('"')) {
    if (position_ == text_.size()) fail("string without an end");
    if (take('\\')) {
      escape();
      continue;
    }
    const std::size_t n_bytes = utf8_character_bytes(text_.substr(position_));
    if (n_bytes == 0) fail(rules_.string, "string that is not UTF-8");
    if (static_cast<unsigned char>(peek()) < 0x20) fail(rules_.string, "control character in a string");
    value_ += text_.substr(position_, n_bytes);
    position_ += n_bytes;
  }
}

void JsonReader::escape() {
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kCharacters = "\"\\/\b\f\n\r\t";
  if (const std::size_t place = kNames.find(peek()); place != kNames.npos && position_ < text_.size()) {
    value_ += kCharacters[place];
    ++position_;
    return;
  }
  if (!take('u')) fail("unknown escape");
  const std::uint32_t first = hex4();
  if (first < 0xd800 || first > 0xdfff) return append_character(first);
  const bool paired = first < 0xdc00 && take('\\') && take('u');
  const std::uint32_t second = paired ? hex4() : 0;
  if (second < 0xdc00 || second > 0xdfff) fail(rules_.string, "half a surrogate pair");
  append_character(0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00));
}

std::uint32_t JsonReader::hex4() {
  std::uint32_t code = 0;
  const std::string_view digits = text_.substr(position_, 4);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (error != std::errc() || digits.size() != 4 || end != digits.data() + 4) fail("expected four hexadecimal digits");
  position_ += 4;
  return code;
}

void JsonReader::append_character(std::uint32_t code_point) {
  const auto continuation = [&](int shift) { return static_cast<char>(0x80 | ((code_point >> shift) & 0x3f)); };
  if (code_point < 0x80) {
    value_ += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    value_ += {static_cast<char>(0xc0 | code_point >> 6), continuation(0)};
  } else if (code_point < 0x10000) {
    value_ += {static_cast<char>(0xe0 | code_point >> 12), continuation(6), continuation(0)};
  } else {
    value_ += {static_cast<char>(0xf0 | code_point >> 18), continuation(12), continuation(6), continuation(0)};
  }
}

void JsonReader::skip_space() noexcept {
  while (position_ < text_.size() && std::string_view(" \t\r\n").find(text_[position_]) != std::string_view::npos) {
    ++position_;
  }
}

bool JsonReader::take(char c) noexcept {
  if (position_ == text_.size() || text_[position_] != c) return false;
  ++position_;
  return true;
}

std::optional<std::uint64_t> json_unsigned(std::string_view number) noexcept {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  return error == std::errc() && end == number.data() + number.size() ? std::optional(value) : std::nullopt;
}

}  // namespace imp
