// Ranges of layers: their words, and which one counts.
#include "model/config/kv_layers.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace imp {
namespace {

constexpr std::size_t kMostRanges = 64;

[[noreturn]] void refuse(const std::string& what, int n_kv_layers) {
  throw ModelError(Reason::OVERRIDE_INVALID,
                   "override kv_layers" + what + " for the cache's " + std::to_string(n_kv_layers) + " layers");
}

std::string entry_text(const KvLayerOverride& override) {
  return ".\"" + override.range + "\" = " + text_of(override.types);
}

// Removes a layer's number from the start of the word; those below 0 count from the end.
std::optional<int> take_layer(std::string_view& word, int n_kv_layers) {
  int layer = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), layer);
  if (error != std::errc{}) return std::nullopt;
  word.remove_prefix(static_cast<std::size_t>(end - word.data()));
  return layer < 0 ? layer + n_kv_layers : layer;
}

// "3" or "0-1" or "-2--1".
std::optional<KvRange> range_of(const KvLayerOverride& override, int n_kv_layers) {
  std::string_view word = override.range;
  const std::optional<int> first = take_layer(word, n_kv_layers);
  std::optional<int> last = first;
  if (word.starts_with('-')) {
    word.remove_prefix(1);
    last = take_layer(word, n_kv_layers);
  }
  if (!word.empty() || !first || !last || *first < 0 || *last < *first || *last >= n_kv_layers) return std::nullopt;
  return KvRange{*first, *last, override.types};
}

int width_of(const KvRange& range) {
  return range.last - range.first;
}

bool contradict(const KvRange& a, const KvRange& b) {
  return width_of(a) == width_of(b) && a.first <= b.last && b.first <= a.last && a.types != b.types;
}

}  // namespace

std::vector<KvRange> read_kv_layers(std::span<const KvLayerOverride> overrides, int n_kv_layers) {
  if (overrides.size() > kMostRanges) {
    refuse(": " + std::to_string(overrides.size()) + " ranges, expected at most " + std::to_string(kMostRanges),
           n_kv_layers);
  }
  std::vector<KvRange> ranges;
  for (const KvLayerOverride& override : overrides) {
    const std::optional<KvRange> range = range_of(override, n_kv_layers);
    if (!range) refuse(entry_text(override) + R"(: expected a range such as "0-1", "0" or "-2--1")", n_kv_layers);
    const auto other = std::ranges::find_if(ranges, [&](const KvRange& each) { return contradict(each, *range); });
    if (other != ranges.end()) {
      const KvLayerOverride& first = overrides[static_cast<std::size_t>(other - ranges.begin())];
      refuse(entry_text(override) + ": kv_layers" + entry_text(first) +
                 " is as wide and names the same layer, expected one",
             n_kv_layers);
    }
    ranges.push_back(*range);
  }
  std::ranges::stable_sort(ranges, std::ranges::greater{}, width_of);
  return ranges;
}

std::string kv_layers_text(std::span<const KvTypes> by_layer) {
  std::string text;
  for (std::size_t first = 0, end = 0; first < by_layer.size(); first = end) {
    while (end < by_layer.size() && by_layer[end] == by_layer[first]) ++end;
    text.append(text.empty() ? "" : ", ").append(std::to_string(first));
    if (end > first + 1) text.append("-").append(std::to_string(end - 1));
    text.append(" ").append(text_of(by_layer[first]));
  }
  return text;
}

}  // namespace imp
