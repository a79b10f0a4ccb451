#include "text/byte_tokens.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace imp {
namespace {

// Printable Latin-1 stands for itself. The other bytes have the code points from U+0100 on, in order.
constexpr bool is_itself(unsigned byte) noexcept {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Alphabet {
  std::array<unsigned, 256> code_of{};
  std::array<int, 0x144> byte_of{};  // by code point; -1: not in the alphabet
};

constexpr Alphabet kAlphabet = [] {
  Alphabet alphabet;
  alphabet.byte_of.fill(-1);
  unsigned shifted = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const unsigned code = is_itself(byte) ? byte : shifted++;
    alphabet.code_of[byte] = code;
    alphabet.byte_of[code] = static_cast<int>(byte);
  }
  return alphabet;
}();

constexpr std::string_view kMark = "\xe2\x96\x81";  // U+2581

// `<0x00>` to `<0xFF>`, one after another.
constexpr std::size_t kFallbackBytes = 6;
constexpr auto kFallbackNames = [] {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::array<char, 256 * kFallbackBytes> names{};
  for (std::size_t byte = 0; byte < 256; ++byte) {
    const char name[] = {'<', '0', 'x', kDigits[byte / 16], kDigits[byte % 16], '>'};
    for (std::size_t i = 0; i < kFallbackBytes; ++i) names[byte * kFallbackBytes + i] = name[i];
  }
  return names;
}();

}  // namespace

void append_spelled(std::string_view bytes, std::string& spelled) {
  for (const char c : bytes) {
    const unsigned code = kAlphabet.code_of[static_cast<unsigned char>(c)];
    if (code >= 0x80) spelled += static_cast<char>(0xc0 | (code >> 6));
    spelled += static_cast<char>(code < 0x80 ? code : 0x80 | (code & 0x3f));
  }
}

std::optional<std::string> spelled_bytes(std::string_view piece) {
  std::string bytes(piece.size(), '\0');
  std::size_t n_bytes = 0;
  for (std::size_t at = 0; at < piece.size(); ++n_bytes) {
    const auto first = static_cast<unsigned char>(piece[at]);
    const std::size_t n_units = first < 0x80 ? 1 : utf8_character_bytes(piece.substr(at));
    if (n_units != 1 && n_units != 2) return std::nullopt;
    const unsigned code =
        n_units == 1 ? first : (first & 0x1fu) << 6 | (static_cast<unsigned char>(piece[at + 1]) & 0x3fu);
    if (code >= kAlphabet.byte_of.size() || kAlphabet.byte_of[code] < 0) return std::nullopt;
    bytes[n_bytes] = static_cast<char>(kAlphabet.byte_of[code]);
    at += n_units;
  }
  bytes.resize(n_bytes);
  return bytes;
}

std::optional<std::string> without_marks(std::string_view piece) {
  std::size_t mark = piece.find(kMark);
  if (mark == std::string_view::npos) return std::nullopt;
  std::string bytes;
  for (; mark != std::string_view::npos; mark = piece.find(kMark)) {
    bytes += piece.substr(0, mark);
    bytes += ' ';
    piece.remove_prefix(mark + kMark.size());
  }
  return bytes += piece;
}

WordCuts::WordCuts(const TokenNames& names) noexcept {
  const auto ends_with_byte = [](std::string_view text) {
    return text.size() >= kFallbackBytes && text.ends_with('>') &&
           text.substr(text.size() - kFallbackBytes, 3) == "<0x";
  };
  // The mark, and the character before it, may be spelled by the tokens of their bytes.
  if (names.find(kMark) == TokenNames::kNone) is_joined_.fill(true);
  for (std::size_t id = 0; id < names.size(); ++id) {
    const std::string_view name = names[static_cast<std::int32_t>(id)];
    for (std::size_t mark = name.find(kMark, 1); mark != std::string_view::npos; mark = name.find(kMark, mark + 1)) {
      is_joined_[static_cast<unsigned char>(name[mark - 1])] = true;
      if (ends_with_byte(name.substr(0, mark))) is_joined_.fill(true);
    }
  }
}

std::size_t WordCuts::next(std::string_view word) const noexcept {
  std::size_t mark = word.find(kMark, 1);
  while (mark != std::string_view::npos && is_joined_[static_cast<unsigned char>(word[mark - 1])]) {
    mark = word.find(kMark, mark + 1);
  }
  return std::min(mark, word.size());
}

ByteIds byte_level_ids(const TokenNames& names) {
  ByteIds ids{};
  std::string name;
  for (std::size_t byte = 0; byte < ids.size(); ++byte) {
    name.clear();
    append_spelled(std::string(1, static_cast<char>(byte)), name);
    ids[byte] = names.find(name);
  }
  return ids;
}

std::string_view fallback_name(unsigned char byte) {
  return {kFallbackNames.data() + byte * kFallbackBytes, kFallbackBytes};
}

ByteIds fallback_ids(const TokenNames& names) {
  ByteIds ids{};
  for (std::size_t byte = 0; byte < ids.size(); ++byte) {
    const std::string_view name = fallback_name(static_cast<unsigned char>(byte));
    ids[byte] = names.find(name);
    if (ids[byte] == TokenNames::kNone) throw FieldInvalid("names", "no token is named " + std::string(name));
  }
  return ids;
}

}  // namespace imp
