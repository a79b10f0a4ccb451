#include "text/listed_merges.h"

#include <bit>
#include <limits>
#include <string>

#include "base/error.h"

namespace imp {

ListedMerges::ListedMerges(std::span<const std::string_view> names, std::span<const std::string_view> lines,
                           MergeRules rules)
    : names_(names),
      bytes_(rules.is_byte_level ? byte_level_ids(names_) : fallback_ids(names_)),
      cuts_(names_),
      rules_(rules),
      slots_(std::bit_ceil(lines.size() + lines.size() / 4 + 1), Slot{0, 0, TokenNames::kNone}) {
  if (lines.size() > std::numeric_limits<Rank>::max()) throw FieldInvalid("lines", "more than ranks");
  std::string text;
  std::int32_t result = TokenNames::kNone;
  for (std::size_t rank = 0; rank < lines.size(); ++rank) {
    if (!add_line(lines[rank], static_cast<Rank>(rank), text, result)) knows_all_lines_ = false;
  }
}

std::uint64_t ListedMerges::pair_of(std::int32_t left, std::int32_t right) noexcept {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

std::size_t ListedMerges::slot_of(std::uint64_t pair) const noexcept {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;  // spreads neighbouring ids over the table
  std::size_t at = (pair * kGolden) >> 32 & (slots_.size() - 1);
  while (slots_[at].id != TokenNames::kNone && slots_[at].pair != pair) at = (at + 1) & (slots_.size() - 1);
  return at;
}

// `result` is that of the line before: files list most results in the order of their merges.
bool ListedMerges::add_line(std::string_view line, Rank rank, std::string& text, std::int32_t& result) {
  const std::size_t cut = line.find(' ');
  if (cut == std::string_view::npos || line.find(' ', cut + 1) != std::string_view::npos) return false;
  const std::int32_t left = names_.find(line.substr(0, cut));
  const std::int32_t right = names_.find(line.substr(cut + 1));
  if (left == TokenNames::kNone || right == TokenNames::kNone) return false;
  text.assign(line).erase(cut, 1);
  const bool is_next = static_cast<std::size_t>(result + 1) < names_.size() && names_[result + 1] == text;
  result = is_next ? result + 1 : names_.find(text);
  if (result == TokenNames::kNone) return false;
  const std::uint64_t pair = pair_of(left, right);
  slots_[slot_of(pair)] = {pair, rank, result};
  return true;
}

std::optional<MergedPair<ListedMerges::Rank>> ListedMerges::merged(std::int32_t left,
                                                                   std::int32_t right) const noexcept {
  const Slot& slot = slots_[slot_of(pair_of(left, right))];
  if (slot.id == TokenNames::kNone) return std::nullopt;
  return MergedPair<Rank>{slot.rank, slot.id};
}

void ListedMerges::encode(const Words& words, std::vector<std::int32_t>& ids) const {
  memory_.with([&](Memory& memory) {
    encode_each(words, ids, [&](std::string_view word) {
      memory.cache.append(word, ids, [&] { encode_word(word, memory, ids); });
    });
    memory.symbols.forget_long_word();
  });
}

void ListedMerges::encode_word(std::string_view word, Memory& memory, std::vector<std::int32_t>& ids) const {
  if (rules_.ignores_merges) {
    memory.spelled.clear();
    if (rules_.is_byte_level) append_spelled(word, memory.spelled);
    const std::int32_t id = names_.find(rules_.is_byte_level ? memory.spelled : word);
    if (id != TokenNames::kNone) return ids.push_back(id);
  }
  if (rules_.is_byte_level) return encode_part(word, memory, ids);
  while (!word.empty()) {
    const std::string_view part = word.substr(0, cuts_.next(word));
    word.remove_prefix(part.size());
    memory.cache.append(part, ids, [&] { encode_part(part, memory, ids); });
  }
}

void ListedMerges::encode_part(std::string_view part, Memory& memory, std::vector<std::int32_t>& ids) const {
  WordMerger<Rank>& symbols = memory.symbols;
  symbols.clear();
  if (rules_.is_byte_level) {
    for (const char c : part) {
      const std::int32_t id = bytes_[static_cast<unsigned char>(c)];
      if (id != TokenNames::kNone) symbols.add(id, 1);
    }
  } else {
    for_each_character(part, names_, bytes_,
                       [&](std::int32_t id, std::string_view name) { symbols.add(id, name.size()); });
  }
  symbols.merge([this](const Symbol& left, const Symbol& right) { return merged(left.id, right.id); });
  symbols.append_ids(ids);
}

}  // namespace imp
