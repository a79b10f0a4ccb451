// Where each fact about a model came from.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace imp {

enum class Origin : std::uint8_t { checkpoint, architecture, user };
std::string_view origin_name(Origin origin) noexcept;  // "checkpoint", "architecture", "override"

// One line of `imp inspect`. `source` is the key, tensor or override that said so; empty for an architecture's default.
struct Fact {
  std::string name;
  std::string value;
  Origin origin = Origin::architecture;
  std::string source;
};

// Who said it last, and where: "key llama.block_count", "tensor token_embd.weight", "override max_context".
struct OriginNote {
  Origin origin = Origin::architecture;
  std::string source;
};

// Notes made while a configuration is resolved. A field without a note is the architecture's.
class Origins {
 public:
  void note(std::string_view field, Origin origin, std::string source);
  OriginNote find(std::string_view field) const;

 private:
  std::map<std::string, OriginNote, std::less<>> notes_;
};

}  // namespace imp
