// Guesses a file's kind from its first bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace imp {

enum class FileKind : std::uint8_t {
  GGUF,
  SAFETENSORS,
  JSON,
  OTHER,    // another known kind
  UNKNOWN,  // perhaps a truncated file of a kind above
};

struct FileGuess {
  FileKind kind = FileKind::UNKNOWN;
  std::string_view description;  // for a message: "a ZIP archive"
};

// Number of first bytes that guess_kind uses.
inline constexpr std::size_t kGuessBytes = 512;

// `begin` has the first kGuessBytes of a file, or all of a shorter file.
FileGuess guess_kind(std::span<const std::byte> begin);

}  // namespace imp
