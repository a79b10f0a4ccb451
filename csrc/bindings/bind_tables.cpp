// The core's tables as data.
#include "bindings/register.h"

#include <pybind11/stl.h>

#include <type_traits>
#include <variant>
#include <vector>

#include "backend/kv_types.h"
#include "base/error.h"
#include "bindings/sampler_values.h"
#include "engine/data/engine_options.h"
#include "engine/data/limits.h"
#include "engine/speculation/drafter_list.h"
#include "model/arithmetic.h"

namespace py = pybind11;

namespace imp::bindings {
namespace {

template <class T, std::size_t N>
std::vector<T> list_of(const T (&table)[N]) {
  return {std::begin(table), std::end(table)};
}

void register_sampler_fields(py::module_& module) {
  py::class_<SamplerField>(module, "SamplerField", "A numeric option of the sampler: its range, default and meaning.")
      .def_readonly("name", &SamplerField::name,
                    "Its name in imp.v1's SamplingOptions. Names that begin with `dry.` are in its "
                    "DryOptions.")
      .def_property_readonly("keyword", &keyword_of, "Its keyword in the class SamplingOptions.")
      .def_property_readonly(
          "is_whole",
          [](const SamplerField& self) { return !std::holds_alternative<float SamplerValues::*>(self.member); })
      .def_readonly("low", &SamplerField::low)
      .def_readonly("above", &SamplerField::above, "Whether `low` itself is out of range.")
      .def_readonly("high", &SamplerField::high, "Infinite if only the type limits it.")
      .def_property_readonly("default", [](const SamplerField& self) { return value_of(self, {}); })
      .def_readonly("meaning", &SamplerField::meaning)
      .def_readonly("example", &SamplerField::example);
  module.def("sampler_fields", [] { return list_of(kSamplerFields); }, "Every numeric option of the sampler.");
}

void register_engine_fields(py::module_& module) {
  py::class_<EngineField>(module, "EngineField", "An engine option that imp.conf can set.")
      .def_readonly("name", &EngineField::name, "Its attribute in EngineOptions.")
      .def_readonly("key", &EngineField::key, "Its key in imp.conf.")
      .def_readonly("low", &EngineField::low)
      .def_readonly("high", &EngineField::high)
      .def_property_readonly("default",
                             [](const EngineField& self) {
                               const EngineOptions options;
                               return std::visit([&](auto member) { return py::object(py::cast(options.*member)); },
                                                 self.member);
                             })
      .def_readonly("meaning", &EngineField::meaning);
  module.def("engine_fields", [] { return list_of(kEngineFields); }, "Every engine option that imp.conf can set.");
}

void register_limits(py::module_& module) {
  py::class_<Limits>(module, "Limits", "The limits of a request.")
      .def_readonly("top_logprobs", &Limits::top_logprobs)
      .def_readonly("stop_tokens", &Limits::stop_tokens)
      .def_readonly("logit_biases", &Limits::logit_biases)
      .def_readonly("bias", &Limits::bias, "The largest magnitude.")
      .def_readonly("sequences", &Limits::sequences)
      .def_readonly("run_sequences", &Limits::run_sequences)
      .def_readonly("priority", &Limits::priority, "The largest magnitude.")
      .def_readonly("tenant_bytes", &Limits::tenant_bytes)
      .def_readonly("scope_bytes", &Limits::scope_bytes)
      .def_readonly("profile_steps", &Limits::profile_steps)
      .def_readonly("draft_tokens", &Limits::draft_tokens);
  module.attr("LIMITS") = kLimits;
}

void register_drafters(py::module_& module) {
  module.def(
      "drafters",
      [] {
        py::dict meanings;
        for (const DrafterRow& row : kDrafters) meanings[py::cast(row.name)] = row.meaning;
        return meanings;
      },
      "The drafters, each with its meaning.");
}

void register_kv_types(py::module_& module) {
  py::class_<KvTypeTraits>(module, "KvType", "A type of cached keys or values.")
      .def_readonly("name", &KvTypeTraits::name)
      .def_readonly("is_quantized", &KvTypeTraits::is_quantized, "Replies call it an approximation.")
      .def_property_readonly(
          "bits", [](const KvTypeTraits& self) { return static_cast<double>(self.bits_per_block) / kKvBlock; },
          "Of a value, with its share of a scale.");
  module.def(
      "kv_types", [] { return std::vector(all_kv_types().begin(), all_kv_types().end()); },
      "The types of cached keys and values.");
}

void register_reasons(py::module_& module) {
  module.def(
      "reasons",
      [] {
        py::dict kinds;
        for (const ReasonRow& row : kReasons) kinds[py::cast(row.name)] = row.kind;
        return kinds;
      },
      "The reasons of errors, each with the name of its class.");
}

}  // namespace

void register_tables(py::module_& module) {
  module.attr("ARITHMETIC_REVISION") = kArithmeticRevision;
  register_sampler_fields(module);
  register_engine_fields(module);
  register_limits(module);
  register_drafters(module);
  register_kv_types(module);
  register_reasons(module);
}

}  // namespace imp::bindings
