// A user's changes to a model.
#include "bindings/register.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "bindings/keywords.h"
#include "model/config/model_overrides.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

[[noreturn]] void refuse_word(const char* override, const std::string& found, const std::string& known) {
  throw ModelError(Reason::OVERRIDE_INVALID,
                   "override " + std::string(override) + ": " + found + ", known are " + known);
}

constexpr std::pair<std::string_view, RopeScalingKind> kScalingWords[] = {
    {"none", RopeScalingKind::none},
    {"linear", RopeScalingKind::linear},
    {"yarn", RopeScalingKind::yarn},
    {"llama3", RopeScalingKind::wavelength},
};

KvTypes kv_types(const char* override, const std::string& word) {
  const std::optional<KvTypes> types = kv_types_from(word);
  if (!types) refuse_word(override, word, kv_type_names());
  return *types;
}

Pooling pooling_of(const std::string& word) {
  std::string all;
  for (std::size_t i = 1; i < kPoolingNames.size(); ++i) {
    if (word == kPoolingNames[i]) return static_cast<Pooling>(i);
    all.append(all.empty() ? "" : ", ").append(kPoolingNames[i]);
  }
  refuse_word("pooling", word, all);
}

RopeScalingKind scaling_kind(const std::string& word) {
  std::string all;
  for (const auto& [known, kind] : kScalingWords) {
    if (word == known) return kind;
    all.append(all.empty() ? "" : ", ").append(known);
  }
  refuse_word("rope_scaling.type", word, all);
}

std::string_view scaling_word(RopeScalingKind kind) {
  return std::ranges::find(kScalingWords, kind, &std::pair<std::string_view, RopeScalingKind>::second)->first;
}

}  // namespace

void register_overrides(py::module_& module) {
  using Scaling = RopeScalingOverride;
  py::class_<Scaling>(module, "RopeScaling", "Scaling of rotary positions. A value of None keeps what the file has.")
      .def(from_keywords<Scaling>())
      .def_property(
          "type",
          [](const Scaling& self) { return self.kind ? std::optional(scaling_word(*self.kind)) : std::nullopt; },
          [](Scaling& self, const std::optional<std::string>& word) {
            self.kind = word ? std::optional(scaling_kind(*word)) : std::nullopt;
          })
      .def_readwrite("factor", &Scaling::factor)
      .def_readwrite("original_context", &Scaling::original_context)
      .def_readwrite("attention_factor", &Scaling::attention_factor)
      .def_readwrite("beta_fast", &Scaling::beta_fast)
      .def_readwrite("beta_slow", &Scaling::beta_slow)
      .def_readwrite("low_freq_factor", &Scaling::low_freq_factor)
      .def_readwrite("high_freq_factor", &Scaling::high_freq_factor);

  py::class_<ModelOverrides>(module, "ModelOverrides",
                             "A user's changes to a model. Attributes that are not set are None or empty.")
      .def(py::init<>())
      .def_readwrite("max_context", &ModelOverrides::max_context)
      .def_readwrite("context_limit", &ModelOverrides::context_limit)
      .def_readwrite("untrained_context", &ModelOverrides::untrained_context)
      .def_property(
          "pooling",
          [](const ModelOverrides& self) {
            return self.pooling ? std::optional(name_of(*self.pooling)) : std::nullopt;
          },
          [](ModelOverrides& self, const std::optional<std::string>& word) {
            self.pooling = word ? std::optional(pooling_of(*word)) : std::nullopt;
          },
          "How the rows of a text become a vector, of a file that does not say it: mean, cls, last or rank.")
      .def_property(
          "kv_dtype",
          [](const ModelOverrides& self) {
            return self.kv_types ? std::optional(text_of(*self.kv_types)) : std::nullopt;
          },
          [](ModelOverrides& self, const std::optional<std::string>& word) {
            self.kv_types = word ? std::optional(kv_types("kv_dtype", *word)) : std::nullopt;
          })
      .def_property(
          "kv_layers",
          [](const ModelOverrides& self) {
            Pairs pairs;
            for (const KvLayerOverride& one : self.kv_layers) pairs.emplace_back(one.range, text_of(one.types));
            return pairs;
          },
          [](ModelOverrides& self, const Pairs& pairs) {
            self.kv_layers.clear();
            for (const auto& [range, word] : pairs) self.kv_layers.push_back({range, kv_types("kv_layers", word)});
          },
          "Pairs (range of layers of the cache, types). Assign the whole list.")
      .def_readwrite("rope_theta", &ModelOverrides::rope_theta)
      .def_readwrite("rope_scaling", &ModelOverrides::rope_scaling)
      .def_property(
          "gemm",
          [](const ModelOverrides& self) {
            Pairs pairs;
            for (const GemmOverride& one : self.gemm) pairs.emplace_back(one.pattern, one.kernel);
            return pairs;
          },
          [](ModelOverrides& self, const Pairs& pairs) {
            self.gemm.clear();
            for (const auto& [pattern, kernel] : pairs) self.gemm.push_back({pattern, kernel});
          },
          "Pairs (weight type or glob over tensor names, kernel). Assign the whole list.")
      .def_readwrite("deterministic", &ModelOverrides::deterministic)
      .def_readwrite("unvalidated_kernels", &ModelOverrides::unvalidated_kernels)
      .def_readwrite("eos_token_ids", &ModelOverrides::eos_token_ids)
      .def_readwrite("suppress_tokens", &ModelOverrides::suppress_tokens);
}

}  // namespace imp::bindings
