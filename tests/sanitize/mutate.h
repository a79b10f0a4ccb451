// Breaks the bytes of a file in ways that a binary or a textual format notices.
#pragma once

#include <random>
#include <string>
#include <string_view>

namespace imp::fuzz {

using Random = std::mt19937_64;

// `data` with one to four changes: numbers set to boundaries, bytes flipped, pieces removed, doubled or moved, words of
// either format put in. Most changes fall into the first kilobyte, where the headers are.
std::string mutated(std::string_view data, Random& random);

}  // namespace imp::fuzz
