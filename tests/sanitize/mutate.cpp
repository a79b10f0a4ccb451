// One function for each kind of change.
#include "mutate.h"

#include <array>
#include <cstdint>
#include <cstring>

namespace imp::fuzz {
namespace {

using namespace std::string_view_literals;

constexpr std::array kNumbers{0ull,
                              1ull,
                              2ull,
                              7ull,
                              8ull,
                              31ull,
                              32ull,
                              33ull,
                              64ull,
                              65ull,
                              255ull,
                              4096ull,
                              4097ull,
                              65535ull,
                              65536ull,
                              65537ull,
                              1ull << 24,
                              (1ull << 24) + 1,
                              (1ull << 31) - 1,
                              1ull << 31,
                              (1ull << 32) - 1,
                              1ull << 32,
                              1ull << 40,
                              (1ull << 40) + 1,
                              1ull << 62,
                              (1ull << 63) - 1,
                              1ull << 63,
                              ~0ull - 31,
                              ~0ull - 7,
                              ~0ull};

constexpr std::array kWords{"GGUF"sv,
                            "general.alignment"sv,
                            "split.count"sv,
                            "\"dtype\""sv,
                            "\"F16\""sv,
                            "[0,4]"sv,
                            "{"sv,
                            "}"sv,
                            "["sv,
                            "]"sv,
                            ","sv,
                            ":"sv,
                            "\""sv,
                            "\\u0000"sv,
                            "\\ud800"sv,
                            "-1"sv,
                            "1e999"sv,
                            "18446744073709551615"sv,
                            "18446744073709551616"sv,
                            "null"sv,
                            "\xff"sv,
                            "\xed\xa0\x80"sv,
                            "__metadata__"sv,
                            "weight_map"sv,
                            "../"sv};

std::size_t below(std::size_t limit, Random& random) {
  return limit == 0 ? 0 : random() % limit;
}

std::size_t place_in(const std::string& data, Random& random) {
  return below(random() % 8 == 0 ? data.size() : std::min<std::size_t>(data.size(), 1024), random);
}

void set_number(std::string& data, Random& random) {
  const std::size_t n_bytes = std::size_t{1} << below(4, random);
  if (data.size() < n_bytes) return;
  const std::size_t place = std::min(place_in(data, random), data.size() - n_bytes);
  std::uint64_t number = kNumbers[below(kNumbers.size(), random)];
  if (random() % 2 == 0) {  // or a number next to the present one
    std::memcpy(&number, data.data() + place, n_bytes);
    number += random() % 3 - 1 + (random() % 4 == 0 ? 32 : 0);
  }
  std::memcpy(data.data() + place, &number, n_bytes);
}

void flip_bit(std::string& data, Random& random) {
  if (!data.empty()) data[place_in(data, random)] ^= static_cast<char>(1 << below(8, random));
}

void remove_piece(std::string& data, Random& random) {
  data.erase(place_in(data, random), random() % 16 == 0 ? data.size() : below(40, random));
}

void double_piece(std::string& data, Random& random) {
  const std::string piece = data.substr(place_in(data, random), 1 + below(80, random));
  data.insert(place_in(data, random), piece);
}

void repeat_piece(std::string& data, Random& random) {
  const std::string piece = data.substr(place_in(data, random), 1 + below(8, random));
  const std::size_t place = place_in(data, random);
  for (std::size_t n = below(300, random); n > 0; --n) data.insert(place, piece);
}

void put_word(std::string& data, Random& random) {
  const std::string_view word = kWords[below(kWords.size(), random)];
  const std::size_t place = place_in(data, random);
  if (random() % 2 == 0) data.erase(place, word.size());
  data.insert(std::min(place, data.size()), word);
}

void set_digit(std::string& data, Random& random) {
  const std::size_t digit = data.find_first_of("0123456789", place_in(data, random));
  if (digit == data.npos) return;
  data[digit] = static_cast<char>('0' + below(10, random));
  if (random() % 4 == 0) data.insert(digit, std::to_string(kNumbers[below(kNumbers.size(), random)]));
}

}  // namespace

std::string mutated(std::string_view data, Random& random) {
  constexpr std::array kWays{set_number,   set_number,   flip_bit, remove_piece,
                             double_piece, repeat_piece, put_word, set_digit};
  std::string broken(data);
  for (std::size_t n = 1 + below(4, random); n > 0; --n) kWays[below(kWays.size(), random)](broken, random);
  return broken;
}

}  // namespace imp::fuzz
