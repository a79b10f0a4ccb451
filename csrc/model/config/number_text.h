// A number as the shortest text that reads back as the same number, in any locale.
#pragma once

#include <charconv>
#include <concepts>
#include <string>

namespace imp {

template <std::floating_point Number>
std::string number_text(Number value) {
  char text[32];
  return {text, std::to_chars(text, text + sizeof text, value, std::chars_format::general).ptr};
}

}  // namespace imp
