#include "text/scored_merges.h"

#include <cmath>
#include <string>

#include "base/error.h"

namespace imp {

ScoredMerges::ScoredMerges(std::span<const std::string_view> names, std::span<const float> scores)
    : names_(names), bytes_(fallback_ids(names_)), cuts_(names_), scores_(scores.begin(), scores.end()) {
  if (scores.size() != names.size()) {
    throw FieldInvalid("scores", std::to_string(scores.size()) + " entries, expected " + std::to_string(names.size()));
  }
}

void ScoredMerges::encode(const Words& words, std::vector<std::int32_t>& ids) const {
  memory_.with([&](Memory& memory) {
    encode_each(words, ids, [&](std::string_view word) {
      while (!word.empty()) {
        const std::string_view part = word.substr(0, cuts_.next(word));
        word.remove_prefix(part.size());
        memory.cache.append(part, ids, [&] { encode_part(part, memory, ids); });
      }
    });
    memory.symbols.forget_long_word();
  });
}

void ScoredMerges::encode_part(std::string_view part, Memory& memory, std::vector<std::int32_t>& ids) const {
  memory.symbols.clear();
  memory.spelled.clear();
  for_each_character(part, names_, bytes_, [&](std::int32_t id, std::string_view name) {
    memory.symbols.add(id, name.size());
    memory.spelled += name;
  });
  memory.symbols.merge([&](const Symbol& left, const Symbol& right) -> std::optional<MergedPair<Rank>> {
    const std::int32_t id = names_.find(std::string_view(memory.spelled).substr(left.begin, left.size + right.size));
    if (id == TokenNames::kNone) return std::nullopt;
    const float score = scores_[static_cast<std::size_t>(id)];
    if (!std::isfinite(score)) return std::nullopt;
    return MergedPair<Rank>{{-score, id, left.id, right.id}, id};
  });
  memory.symbols.append_ids(ids);
}

}  // namespace imp
