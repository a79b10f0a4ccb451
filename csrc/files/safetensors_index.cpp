// Reads weight_map and skips the rest of the index.
#include "files/safetensors_index.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/printable.h"
#include "files/json_metadata.h"
#include "files/json_reader.h"

namespace imp::safetensors {
namespace {

constexpr std::uint64_t kMaxIndexBytes = std::uint64_t{32} << 20;
// Models with many experts and 8-bit weights have up to a hundred thousand tensors, including their scales.
constexpr std::size_t kMaxIndexed = std::size_t{1} << 18;
constexpr JsonRules kRules{Reason::MODEL_SHARD, Reason::MODEL_SHARD, 8};

using WeightMap = std::map<std::string, std::string>;  // tensor, file

WeightMap read_weight_map(JsonReader& reader) {
  WeightMap map;
  reader.expect(JsonEvent::BEGIN_OBJECT, "an object");
  while (reader.next() == JsonEvent::KEY) {
    if (map.size() == kMaxIndexed) {
      reader.fail(Reason::MODEL_LIMIT, "more than " + std::to_string(kMaxIndexed) + " tensors");
    }
    std::string tensor = reader.value();
    reader.expect(JsonEvent::STRING, "a file name");
    if (!map.emplace(std::move(tensor), reader.value()).second) reader.fail("tensor occurs twice");
  }
  return map;
}

}  // namespace

Index read_index(const File& file) {
  const std::string text = read_text(file, kMaxIndexBytes);
  JsonReader reader(text, file.name(), kRules);
  reader.expect(JsonEvent::BEGIN_OBJECT, "an object");
  WeightMap map;
  bool found = false;
  while (reader.next() == JsonEvent::KEY) {
    if (reader.value() != "weight_map") {
      reader.skip(reader.next());
      continue;
    }
    if (std::exchange(found, true)) reader.fail("weight_map occurs twice");
    map = read_weight_map(reader);
  }
  reader.expect(JsonEvent::END, "the end");
  if (map.empty()) throw ModelError(Reason::MODEL_SHARD, file.name() + ": has no weight_map, or an empty one");

  Index index;
  for (const auto& [tensor, shard] : map) index.shards.push_back(shard);
  std::ranges::sort(index.shards);
  index.shards.erase(std::ranges::unique(index.shards).begin(), index.shards.end());
  for (auto& [tensor, shard] : map) {
    const auto place = std::ranges::lower_bound(index.shards, shard);
    index.entries.push_back({tensor, static_cast<std::size_t>(place - index.shards.begin())});
  }
  return index;
}

}  // namespace imp::safetensors
