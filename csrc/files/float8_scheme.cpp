// The four formats that describe 8-bit weights.
#include "files/float8_scheme.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "tensor/quant/f8_e4m3.h"

namespace imp {
namespace {

constexpr std::array<std::string_view, 2> kSections = {"quantization_config.", "compression_config."};

class SchemeReader {
 public:
  SchemeReader(const Metadata& config, std::string_view section) : config_(config), section_(section) {}

  Float8Scheme read() const {
    const auto method = word("quant_method");
    // The older format has no method.
    if (!method && section_ == kSections[1]) return read_compressed_tensors();
    if (method == "fp8") return read_fp8();
    if (method == "fbgemm_fp8") return {};
    if (method == "modelopt") return read_modelopt();
    if (method == "compressed-tensors") return read_compressed_tensors();
    refuse("quant_method", method ? printable(*method) : "missing",
           "one of fp8, fbgemm_fp8, compressed-tensors, modelopt, mxfp4, or weights of f32, f16 or bf16");
  }

 private:
  std::string key(std::string_view name) const { return std::string(section_) + std::string(name); }
  std::optional<std::string_view> word(std::string_view name) const { return config_.find_string(key(name)); }

  [[noreturn]] void refuse(std::string_view name, const std::string& found, std::string_view expected) const {
    throw ModelError(Reason::MODEL_UNSUPPORTED,
                     config_.where() + ": " + key(name) + ": " + found + ", expected " + std::string(expected));
  }
  void require_word(std::string_view name, std::string_view expected) const {
    const auto found = word(name);
    if (found && *found != expected) refuse(name, printable(*found), expected);
  }

  Float8Scheme block(std::string_view name) const {
    const auto sizes = config_.find_integers<std::uint32_t>(key(name));
    if (!sizes) return {};
    std::string found;
    for (const std::uint32_t size : *sizes) found += (found.empty() ? "" : " x ") + std::to_string(size);
    constexpr auto kElements = static_cast<std::uint32_t>(quant::BlockF8_E4M3::kElements);
    if (sizes->size() != 2 || sizes->front() == 0 || sizes->back() == 0 || sizes->back() % kElements != 0) {
      refuse(name, found.empty() ? "no sizes" : found,
             "rows and columns, the columns a multiple of " + std::to_string(kElements));
    }
    return {sizes->front(), sizes->back()};
  }

  Float8Scheme read_fp8() const {
    require_word("fmt", "e4m3");
    return block("weight_block_size");
  }

  Float8Scheme read_modelopt() const {
    const auto algorithm = word("quant_algo");
    if (algorithm && !algorithm->starts_with("FP8")) refuse("quant_algo", printable(*algorithm), "FP8");
    return {};
  }

  // All groups of modules must have this kind of weights, with equal block sizes if any.
  Float8Scheme read_compressed_tensors() const {
    const auto format = word("format");
    if (format && *format != "float-quantized" && *format != "naive-quantized") {
      refuse("format", printable(*format), "float-quantized");
    }
    require_word("sparsity_config.format", "dense");
    for (const auto& [entry, value] : config_.entries()) {
      if (entry.starts_with(key("transform_config.config_groups."))) {
        refuse("transform_config", "rotated weights", "none");
      }
    }
    Float8Scheme scheme;
    for (const std::string& group : groups()) {
      const Float8Scheme found = read_group(group + ".weights.");
      if (found.block_rows == 0) continue;
      const bool differs = scheme.block_rows != 0 &&
                           (scheme.block_rows != found.block_rows || scheme.block_columns != found.block_columns);
      if (differs)
        refuse(group + ".weights.block_structure", "differs from an earlier group", "the same for all groups");
      scheme = found;
    }
    return scheme;
  }

  // "config_groups.group_0", ...: those with weights.
  std::vector<std::string> groups() const {
    const std::string begin = key("config_groups.");
    std::vector<std::string> found;
    for (const auto& [entry, value] : config_.entries()) {
      if (!entry.starts_with(begin)) continue;
      const std::size_t end = entry.find('.', begin.size());
      if (end == std::string::npos || !entry.substr(end).starts_with(".weights.")) continue;
      std::string group = entry.substr(section_.size(), end - section_.size());
      if (std::ranges::find(found, group) == found.end()) found.push_back(std::move(group));
    }
    if (found.empty()) refuse("config_groups", "none with weights", "float weights of 8 bits");
    return found;
  }

  Float8Scheme read_group(const std::string& weights) const {
    require_word(weights + "type", "float");
    const auto bits = config_.find_integer<std::uint64_t>(key(weights + "num_bits"));
    if (bits && *bits != 8) refuse(weights + "num_bits", std::to_string(*bits), "8");
    const auto strategy = word(weights + "strategy");
    if (!strategy || *strategy == "tensor" || *strategy == "channel") return {};
    if (*strategy != "block") refuse(weights + "strategy", printable(*strategy), "tensor, channel or block");
    return block(weights + "block_structure");
  }

  const Metadata& config_;
  std::string_view section_;
};

}  // namespace

std::optional<Float8Scheme> float8_scheme(const Metadata& config) {
  for (const std::string_view section : kSections) {
    const auto& entries = config.entries();
    const bool is_there =
        std::ranges::any_of(entries, [&](const auto& entry) { return entry.first.starts_with(section); });
    if (is_there) return SchemeReader(config, section).read();
  }
  return std::nullopt;
}

bool is_quantization_key(std::string_view key) noexcept {
  return std::ranges::any_of(kSections, [&](std::string_view section) { return key.starts_with(section); });
}

}  // namespace imp
