// Signatures of files that users mistake for models.
#include "files/file_kind.h"

#include <algorithm>
#include <array>

namespace imp {
namespace {

using namespace std::string_view_literals;

struct Signature {
  std::string_view begin;
  std::string_view description;
};

constexpr std::array kSignatures{
    Signature{"FUGG"sv, "a GGUF file in reversed byte order"},
    Signature{"gguf"sv, "a GGUF file with its magic in lower case"},
    Signature{"GGML"sv, "a GGML file, from before GGUF"},
    Signature{"ggml"sv, "a GGML file, from before GGUF"},
    Signature{"lmgg"sv, "a GGML file, from before GGUF"},
    Signature{"fmgg"sv, "a GGML file, from before GGUF"},
    Signature{"tjgg"sv, "a GGML file, from before GGUF"},
    Signature{"PK\x03\x04"sv, "a ZIP archive, perhaps a PyTorch checkpoint"},
    Signature{"\x1f\x8b"sv, "a gzip archive"},
    Signature{"version https://git-lfs"sv, "a Git LFS pointer, not the file it points to"},
    Signature{"\x89HDF"sv, "an HDF5 file"},
    Signature{"BZh"sv, "a bzip2 archive"},
    Signature{"\xfd"
              "7zXZ"sv,
              "an xz archive"},
    Signature{"\x28\xb5\x2f\xfd"sv, "a zstd archive"},
};

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

bool begins_with_ignoring_case(std::string_view text, std::string_view lower_case) {
  return text.size() >= lower_case.size() &&
         std::ranges::equal(text.substr(0, lower_case.size()), lower_case,
                            [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; });
}

// Text has no NUL. A safetensors file may begin like text, but its header length contains NULs.
bool is_json(std::string_view text) {
  if (text.substr(0, 8).find('\0') != text.npos) return false;
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return text.starts_with('{') || text.starts_with('[');
}

bool is_markup(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  return begins_with_ignoring_case(text, "<!doctype") || begins_with_ignoring_case(text, "<html") ||
         begins_with_ignoring_case(text, "<?xml");
}

}  // namespace

FileGuess guess_kind(std::span<const std::byte> begin) {
  const std::string_view text(reinterpret_cast<const char*>(begin.data()), begin.size());
  if (text.starts_with("GGUF")) return {FileKind::GGUF, "a GGUF file"};
  for (const Signature& signature : kSignatures) {
    if (text.starts_with(signature.begin)) return {FileKind::OTHER, signature.description};
  }
  if (text.size() > 1 && text[0] == '\x80' && text[1] >= 2 && text[1] <= 5) {
    return {FileKind::OTHER, "a Python pickle, which imp never opens"};
  }
  if (is_json(text)) return {FileKind::JSON, "a JSON file"};
  // A safetensors file begins with eight bytes of length, which the reader checks, and the JSON header.
  if (text.size() > 8 && text[8] == '{') return {FileKind::SAFETENSORS, "a safetensors file"};
  if (is_markup(text)) return {FileKind::OTHER, "an HTML or XML page, perhaps an error instead of the download"};
  if (std::ranges::all_of(text, [](char c) { return c == '\0'; })) return {FileKind::UNKNOWN, "zeros"};
  return {FileKind::UNKNOWN, "no known format"};
}

}  // namespace imp
