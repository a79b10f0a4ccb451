// Well-formed UTF-8, byte by byte.
#pragma once

#include <cstddef>
#include <string_view>

namespace imp {

// Bytes of the character at the start of `text`; 0 if it is empty or not well-formed (overlong forms, surrogates and
// values above U+10FFFF are not).
constexpr std::size_t utf8_character_bytes(std::string_view text) noexcept {
  if (text.empty()) return 0;
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t n_bytes = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  // The range of the second byte depends on the first; later bytes are 80 to BF.
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
  const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
  for (std::size_t i = 1; i < n_bytes; ++i) {
    if (byte(i) < (i == 1 ? low : 0x80) || byte(i) > (i == 1 ? high : 0xbf)) return 0;
  }
  return n_bytes;
}

constexpr bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t n_bytes = utf8_character_bytes(text);
    if (n_bytes == 0) return false;
    text.remove_prefix(n_bytes);
  }
  return true;
}

}  // namespace imp
