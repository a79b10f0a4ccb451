// How vocabularies spell text: in the byte alphabet, with marks for spaces, by the tokens of single bytes.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "text/token_names.h"

namespace imp {

// By byte; TokenNames::kNone where there is no token.
using ByteIds = std::array<std::int32_t, 256>;

// The tokens that are named by one character of GPT-2's byte alphabet.
ByteIds byte_level_ids(const TokenNames& names);
// Appends bytes in that alphabet.
void append_spelled(std::string_view bytes, std::string& spelled);
// The bytes that a piece spells; none if a character is not in the alphabet.
std::optional<std::string> spelled_bytes(std::string_view piece);

// A piece with spaces for U+2581; none if it has no such mark.
std::optional<std::string> without_marks(std::string_view piece);

// The tokens `<0x00>` to `<0xFF>`. Throws FieldInvalid if one is missing.
ByteIds fallback_ids(const TokenNames& names);
std::string_view fallback_name(unsigned char byte);

// Where a word of a SentencePiece vocabulary may be cut: before a mark of a space, after a byte that no name has before
// a mark. No merge reaches across.
class WordCuts {
 public:
  explicit WordCuts(const TokenNames& names) noexcept;
  // The end of the part at the start of a word.
  std::size_t next(std::string_view word) const noexcept;

 private:
  std::array<bool, 256> is_joined_{};  // by the byte before a mark
};

// Calls `add` with the id and the name of each symbol of a word: its characters, or the bytes of one without a token.
template <class Add>
void for_each_character(std::string_view word, const TokenNames& names, const ByteIds& fallback, const Add& add) {
  while (!word.empty()) {
    const std::string_view character = word.substr(0, std::max<std::size_t>(utf8_character_bytes(word), 1));
    word.remove_prefix(character.size());
    const std::int32_t id = names.find(character);
    if (id != TokenNames::kNone) {
      add(id, character);
      continue;
    }
    for (const char c : character) {
      const auto byte = static_cast<unsigned char>(c);
      add(fallback[byte], fallback_name(byte));
    }
  }
}

}  // namespace imp
