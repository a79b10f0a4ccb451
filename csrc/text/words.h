// The words of a text, as their encoders get them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace imp {

struct Words {
  std::string_view text;
  std::span<const std::size_t> ends;  // of the words in the text, in bytes
  // Empty, or for each word the id of the token that it is as a whole; negative: none.
  std::span<const std::int32_t> found;
};

inline constexpr std::size_t kMaxWordBytes = std::size_t{1} << 28;

// Appends the ids of all words. `encode` appends those of one. Throws FieldInvalid if the words are not those of a
// text.
template <class Encode>
void encode_each(const Words& words, std::vector<std::int32_t>& ids, const Encode& encode) {
  if (!words.found.empty() && words.found.size() != words.ends.size()) throw FieldInvalid("found", "other words");
  std::size_t begin = 0;
  for (std::size_t i = 0; i < words.ends.size(); ++i) {
    const std::size_t end = words.ends[i];
    if (end < begin || end > words.text.size() || end - begin > kMaxWordBytes) {
      throw FieldInvalid("ends", std::to_string(end) + ", expected up to " + std::to_string(words.text.size()));
    }
    const std::string_view word = words.text.substr(begin, end - begin);
    begin = end;
    if (!words.found.empty() && words.found[i] >= 0) {
      ids.push_back(words.found[i]);
    } else {
      encode(word);
    }
  }
}

}  // namespace imp
