// Makes untrusted text safe for a message.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace imp {

// `text` as UTF-8 without control characters: other bytes become \xNN. Cut with "..." after max_characters.
std::string printable(std::string_view text, std::size_t max_characters = 64);

}  // namespace imp
