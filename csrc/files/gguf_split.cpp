// Reads and compares the split keys.
#include "files/gguf_split.h"

#include "base/error.h"
#include "base/printable.h"

namespace imp::gguf {
namespace {

constexpr std::string_view kNumberKey = "split.no";
constexpr std::string_view kCountKey = "split.count";
constexpr std::string_view kTensorsKey = "split.tensors.count";

// At least five digits.
std::string padded(std::uint64_t value) {
  std::string text = std::to_string(value);
  if (text.size() < 5) text.insert(0, 5 - text.size(), '0');
  return text;
}

std::string suffix(std::uint64_t number, std::uint64_t n_shards) {
  std::string text(1, '-');
  text += padded(number + 1);
  text += "-of-";
  text += padded(n_shards);
  text += ".gguf";
  return text;
}

[[noreturn]] void fail(const Metadata& metadata, const std::string& message) {
  throw ModelError(Reason::MODEL_SHARD, metadata.where() + ": " + message);
}

}  // namespace

Split read_split(const Metadata& metadata, std::uint64_t number) {
  const auto count = metadata.find_integer<std::uint16_t>(kCountKey);
  if (!count) {
    if (number > 0) fail(metadata, "has no key " + std::string(kCountKey) + ", expected a shard of a set");
    return {};
  }
  if (*count == 0) fail(metadata, "key " + std::string(kCountKey) + ": 0 shards, expected at least 1");
  const auto found = metadata.integer<std::uint16_t>(kNumberKey);
  if (found != number) {
    std::string message = "is shard " + std::to_string(found) + " of " + std::to_string(*count) +
                          " (counted from 0), expected " + std::to_string(number);
    // The caller named this file, so it must have number 0.
    if (number == 0) message += ": name the first file of the set, which ends in " + suffix(0, *count);
    fail(metadata, message);
  }
  return {*count, metadata.integer<std::uint32_t>(kTensorsKey)};
}

std::string shard_name(const std::string& first_name, std::uint64_t number, std::uint64_t n_shards) {
  const std::string first_suffix = suffix(0, n_shards);
  if (!first_name.ends_with(first_suffix)) {
    throw ModelError(Reason::MODEL_SHARD, printable(first_name, 255) + ": first of " + std::to_string(n_shards) +
                                              " shards, expected a name that ends in " + first_suffix);
  }
  return first_name.substr(0, first_name.size() - first_suffix.size()) + suffix(number, n_shards);
}

void check_same_model(const Metadata& first, const Metadata& shard) {
  for (const auto& [key, value] : shard.entries()) {
    if (key == kNumberKey) continue;
    const MetadataValue* other = first.find(key);
    if (other && *other != value) fail(shard, "key " + printable(key) + ": differs from that of " + first.where());
  }
}

}  // namespace imp::gguf
