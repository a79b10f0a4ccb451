// Changes the bytes of a file in ways that break a binary or a textual format.
#pragma once

#include <random>
#include <string>
#include <string_view>

namespace imp::fuzz {

using Random = std::mt19937_64;

// Returns `data` with one to four changes: numbers set to limits, bits flipped, pieces removed, repeated or moved, and
// words of either format inserted. Most changes are in the first kilobyte, which has the headers.
std::string mutated(std::string_view data, Random& random);

}  // namespace imp::fuzz
