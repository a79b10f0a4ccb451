// The origin of each fact about a model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace imp {

enum class Origin : std::uint8_t { checkpoint, architecture, user };
std::string_view origin_name(Origin origin) noexcept;  // "checkpoint", "architecture", "override"

// One line of `imp inspect`. `source` is the key, tensor or override; empty for an architecture's default.
struct Fact {
  std::string name;
  std::string value;
  Origin origin = Origin::architecture;
  std::string source;
};

// The last origin and its source: "key llama.block_count", "tensor token_embd.weight", "override max_context".
struct OriginNote {
  Origin origin = Origin::architecture;
  std::string source;
};

// Notes made while a configuration is resolved. A field without a note has the architecture's default.
class Origins {
 public:
  void note(std::string_view field, Origin origin, std::string source);
  OriginNote find(std::string_view field) const;

 private:
  std::map<std::string, OriginNote, std::less<>> notes_;
};

}  // namespace imp
