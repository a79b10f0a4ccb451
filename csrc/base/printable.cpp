// Escapes control characters and bytes that are not UTF-8.
#include "base/printable.h"

#include "base/utf8.h"

namespace imp {

std::string printable(std::string_view text, std::size_t max_characters) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string result;
  for (std::size_t n = 0; !text.empty(); ++n) {
    if (n == max_characters) return result + "...";
    const auto first = static_cast<unsigned char>(text.front());
    const std::size_t n_bytes = utf8_character_bytes(text);
    // U+0080 to U+009F, the C1 control characters, are C2 80 to C2 9F.
    const bool control =
        first < 0x20 || first == 0x7f || (first == 0xc2 && n_bytes == 2 && static_cast<unsigned char>(text[1]) < 0xa0);
    if (n_bytes == 0 || control) {
      result += "\\x";
      result += kHex[first >> 4];
      result += kHex[first & 0x0f];
      text.remove_prefix(1);
    } else {
      result += text.substr(0, n_bytes);
      text.remove_prefix(n_bytes);
    }
  }
  return result;
}

}  // namespace imp
