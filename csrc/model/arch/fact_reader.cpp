// Getters that fill in a configuration, and their refusals.
#include "model/arch/fact_reader.h"

namespace imp {

const std::string& FactReader::ask(std::string_view key) {
  return *asked_.insert(prefix_ + std::string(key)).first;
}

bool FactReader::has(std::string_view key) {
  return file_.metadata().contains(ask(key));
}

std::optional<std::uint64_t> FactReader::find_integer(std::string_view key) {
  return file_.metadata().find_integer<std::uint64_t>(ask(key));
}

std::vector<std::uint32_t> FactReader::find_integers(std::string_view key) {
  const std::string& whole = ask(key);
  const Metadata& metadata = file_.metadata();
  // An empty array of JSON has no type, and no integers.
  if (metadata.is_array(whole))
    return metadata.find_integers<std::uint32_t>(whole).value_or(std::vector<std::uint32_t>{});
  const auto one = metadata.find_integer<std::uint32_t>(whole);
  return one ? std::vector{*one} : std::vector<std::uint32_t>{};
}

bool FactReader::find_flag(std::string_view key) {
  return file_.metadata().find_boolean(ask(key)).value_or(false);
}

void FactReader::find_flag(std::string_view field, std::string_view key, bool& out) {
  const std::string& whole = ask(key);
  const auto found = file_.metadata().find_boolean(whole);
  if (!found) return;
  out = *found;
  note_key(field, whole);
}

int FactReader::checked_count(const std::string& key, std::uint64_t value, std::int64_t limit) const {
  const std::string expected = "1 to " + std::to_string(limit);
  const std::string_view bare = std::string_view(key).substr(prefix_.size());
  if (value == 0) file_.metadata().refuse_value(key, "0", expected);
  if (value > static_cast<std::uint64_t>(limit)) refuse(Reason::MODEL_LIMIT, bare, std::to_string(value), expected);
  return static_cast<int>(value);
}

void FactReader::count(std::string_view field, std::string_view key, std::int64_t limit, int& out) {
  const std::string& whole = ask(key);
  out = checked_count(whole, file_.metadata().integer<std::uint64_t>(whole), limit);
  note_key(field, whole);
}

bool FactReader::find_count(std::string_view field, std::string_view key, std::int64_t limit, int& out) {
  const std::string& whole = ask(key);
  const auto found = file_.metadata().find_integer<std::uint64_t>(whole);
  if (!found) return false;
  out = checked_count(whole, *found, limit);
  note_key(field, whole);
  return true;
}

void FactReader::number(std::string_view field, std::string_view key, float& out) {
  const std::string& whole = ask(key);
  out = file_.metadata().number(whole);
  note_key(field, whole);
}

std::optional<float> FactReader::number_at(std::string_view field, std::string_view key) {
  const std::string& whole = ask(key);
  const std::optional<float> found = file_.metadata().find_number(whole);
  if (found) note_key(field, whole);
  return found;
}

std::optional<std::string_view> FactReader::find_word(std::string_view field, std::string_view key) {
  const std::string& whole = ask(key);
  const auto found = file_.metadata().find_string(whole);
  if (found) note_key(field, whole);
  return found;
}

const StringArray* FactReader::find_words(std::string_view field, std::string_view key) {
  const std::string& whole = ask(key);
  const StringArray* found = file_.metadata().find_strings(whole);
  if (found) note_key(field, whole);
  return found;
}

std::optional<std::vector<bool>> FactReader::find_flags(std::string_view field, std::string_view key) {
  const std::string& whole = ask(key);
  const MetadataValue* value = file_.metadata().find(whole);
  const auto* array = value ? std::get_if<NumericArray>(&value->value) : nullptr;
  if (!array || array->type != ValueType::BOOL) return std::nullopt;
  std::vector<bool> flags(array->size());
  for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = array->element<std::uint8_t>(i) != 0;
  note_key(field, whole);
  return flags;
}

void FactReader::note_tensor(std::string_view field, std::string_view tensor) {
  origins.note(field, Origin::checkpoint, "tensor " + std::string(tensor));
}

void FactReader::note_key(std::string_view field, std::string_view whole_key) {
  origins.note(field, Origin::checkpoint, "key " + std::string(whole_key));
}

void FactReader::refuse(Reason reason, std::string_view key, std::string_view found, std::string_view expected) const {
  throw ModelError(reason, file_.metadata().where() + ": key " + prefix_ + std::string(key) + ": " +
                               std::string(found) + ", expected " + std::string(expected));
}

void FactReader::refuse_tensor(Reason reason, std::string_view tensor, std::string_view found,
                               std::string_view expected) const {
  throw ModelError(reason, file_.name() + ": tensor " + std::string(tensor) + ": " + std::string(found) +
                               ", expected " + std::string(expected));
}

std::vector<std::string> FactReader::unread_keys() const {
  std::vector<std::string> unread;
  for (const auto& [key, value] : file_.metadata().entries()) {
    // The header's own notes are no hyper-parameters, and null says nothing.
    if (key.starts_with("__metadata__.") || value.type == ValueType::NONE) continue;
    if (key.starts_with(prefix_) && !asked_.contains(key)) unread.push_back(key);
  }
  return unread;
}

}  // namespace imp
