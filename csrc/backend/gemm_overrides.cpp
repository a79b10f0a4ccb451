#include "backend/gemm_overrides.h"

#include <algorithm>

#include "backend/gemm_messages.h"

namespace imp {
namespace {

bool matches_glob(std::string_view glob, std::string_view text) {
  std::size_t g = 0, t = 0;
  std::size_t star = std::string_view::npos, resume = 0;  // the last *, and the next place where its text may end
  while (t < text.size()) {
    if (g < glob.size() && (glob[g] == '?' || (glob[g] == text[t] && glob[g] != '*'))) {
      ++g, ++t;
    } else if (g < glob.size() && glob[g] == '*') {
      star = g++;
      resume = t;
    } else if (star != std::string_view::npos) {
      g = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return glob.find_first_not_of('*', g) == std::string_view::npos;
}

// The override that applies, or null.
template <class Applies>
const GemmOverride* only_one(std::span<const GemmOverride> overrides, const Applies& applies) {
  const GemmOverride* chosen = nullptr;
  for (const GemmOverride& override : overrides) {
    if (!applies(override)) continue;
    if (chosen != nullptr && chosen->kernel != override.kernel) refuse_second(override, *chosen);
    chosen = &override;
  }
  return chosen;
}

}  // namespace

void require_known(std::span<const GemmKernel> kernels, std::span<const GemmOverride> overrides) {
  for (const GemmOverride& override : overrides) {
    if (find_kernel(kernels, override.kernel) == nullptr) refuse_unknown(override, kernels);
  }
}

const GemmOverride* override_for(std::span<const GemmOverride> overrides, DType weight, std::string_view tensor_name) {
  const GemmOverride* const by_tensor = only_one(overrides, [&](const GemmOverride& override) {
    return !dtype_from_name(override.pattern) && !tensor_name.empty() && matches_glob(override.pattern, tensor_name);
  });
  if (by_tensor != nullptr) return by_tensor;
  return only_one(overrides, [&](const GemmOverride& override) { return override.pattern == traits(weight).name; });
}

void require_matches(std::span<const GemmOverride> overrides, std::span<const std::string_view> tensor_names) {
  for (const GemmOverride& override : overrides) {
    if (dtype_from_name(override.pattern)) continue;
    const auto matched = [&](std::string_view name) { return matches_glob(override.pattern, name); };
    if (std::ranges::none_of(tensor_names, matched)) refuse_without_match(override);
  }
}

}  // namespace imp
