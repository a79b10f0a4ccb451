// What a file is, judged by its first bytes.
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
  OTHER,    // something else that has a name
  UNKNOWN,  // perhaps the rest of one of the above
};

struct FileGuess {
  FileKind kind = FileKind::UNKNOWN;
  std::string_view description;  // for a message: "a ZIP archive"
};

// How many first bytes are worth showing to guess_kind.
inline constexpr std::size_t kGuessBytes = 512;

// `begin` holds the first bytes of a file, all of them where it is shorter than kGuessBytes.
FileGuess guess_kind(std::span<const std::byte> begin);

}  // namespace imp
