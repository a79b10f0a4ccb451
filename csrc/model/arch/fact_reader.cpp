// Typed getters for a checkpoint's keys, and their errors.
#include "model/arch/fact_reader.h"

#include <algorithm>
#include <array>
#include <limits>

#include "base/printable.h"
#include "model/config/number_text.h"

namespace imp {
namespace {

// A key whose name has one of these parts affects the arithmetic, in both formats.
constexpr std::array<std::string_view, 15> kArithmetic = {
    "rope",  "rotary",  "attention", "attn",       "norm",    "expert",         "moe", "router", "residual",
    "scale", "scaling", "clamp",     "multiplier", "softcap", "sliding_window",
};

// The keys of the header's notes and of other files than the configuration.
constexpr std::array<std::string_view, 7> kOtherFiles = {
    "__metadata__.", "generation_config.", "modules", "pooling.", "dense.", "sentence_bert.", "sentence_transformers.",
};

bool is_arithmetic(std::string_view key) {
  return std::ranges::any_of(kArithmetic,
                             [&](std::string_view part) { return key.find(part) != std::string_view::npos; });
}

double number_of(const MetadataValue& value) {
  if (const auto* number = std::get_if<std::uint64_t>(&value.value)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<std::int64_t>(&value.value)) return static_cast<double>(*number);
  const auto* number = std::get_if<double>(&value.value);
  return number ? *number : 0;
}

float float_at(const NumericArray& array, std::size_t i) {
  switch (array.type) {
    case ValueType::F32:
      return array.element<float>(i);
    case ValueType::F64:
      return static_cast<float>(array.element<double>(i));
    case ValueType::U64:
      return static_cast<float>(array.element<std::uint64_t>(i));
    case ValueType::I64:
      return static_cast<float>(array.element<std::int64_t>(i));
    default:
      return std::numeric_limits<float>::quiet_NaN();
  }
}

// Whether a value switches its feature off: false, zero, empty, or a factor of one.
bool is_off(std::string_view key, const MetadataValue& value) {
  if (const auto* flag = std::get_if<bool>(&value.value)) return !*flag;
  if (const auto* text = std::get_if<std::string>(&value.value)) return text->empty();
  if (const auto* array = std::get_if<NumericArray>(&value.value)) return array->size() == 0;
  if (const auto* array = std::get_if<StringArray>(&value.value)) return array->size() == 0;
  const double number = number_of(value);
  const bool is_factor = key.ends_with("scale") || key.ends_with("multiplier") || key.ends_with("scaling");
  return number == 0 || (is_factor && number == 1);
}

std::string found_text(const MetadataValue& value) {
  if (const auto* flag = std::get_if<bool>(&value.value)) return *flag ? "true" : "false";
  if (const auto* text = std::get_if<std::string>(&value.value))
    return std::string(1, '\'').append(printable(*text)).append("'");
  return value.is_array() ? value.type_description() : number_text(number_of(value));
}

}  // namespace

const std::string& FactReader::read_name(std::string_view key) {
  const std::string& whole = *read_.insert(prefix_ + std::string(key)).first;
  const auto other = others_.find(key);
  if (other == others_.end() || file_.metadata().contains(whole)) return whole;
  return *read_.insert(prefix_ + other->second).first;
}

bool FactReader::has(std::string_view key) {
  const MetadataValue* value = file_.metadata().find(read_name(key));
  return value != nullptr && !value->is_null();
}

bool FactReader::has_section(std::string_view section) const {
  const std::string whole = prefix_ + std::string(section);
  return file_.metadata().is_array(whole) || has_members(section);  // an empty one is an empty array
}

bool FactReader::has_members(std::string_view section) const {
  const std::string start = prefix_ + std::string(section) + ".";
  return std::ranges::any_of(file_.metadata().entries(),
                             [&](const auto& entry) { return entry.first.starts_with(start); });
}

void FactReader::ignore_section(std::string_view section) {
  const std::string start = prefix_ + std::string(section) + ".";
  for (const auto& [key, value] : file_.metadata().entries()) {
    if (key.starts_with(start)) read_.insert(key);
  }
}

bool FactReader::is_null(std::string_view key) {
  const MetadataValue* value = file_.metadata().find(read_name(key));
  return value != nullptr && value->is_null();
}

std::optional<std::uint64_t> FactReader::find_integer(std::string_view key) {
  return file_.metadata().find_integer<std::uint64_t>(read_name(key));
}

std::vector<std::uint32_t> FactReader::find_integers(std::string_view key) {
  return find_whole_integers(read_name(key));
}

std::vector<std::uint32_t> FactReader::find_whole_integers(std::string_view whole_key) const {
  const Metadata& metadata = file_.metadata();
  // An empty JSON array has no element type, so it does not count as a list of integers.
  if (metadata.is_array(whole_key))
    return metadata.find_integers<std::uint32_t>(whole_key).value_or(std::vector<std::uint32_t>{});
  const auto one = metadata.find_integer<std::uint32_t>(whole_key);
  return one ? std::vector{*one} : std::vector<std::uint32_t>{};
}

std::vector<std::int64_t> FactReader::find_token_ids(std::string_view key) {
  const std::string& whole = read_name(key);
  const Metadata& metadata = file_.metadata();
  std::vector<std::int64_t> ids;
  if (metadata.is_array(whole)) {
    ids = metadata.find_integers<std::int64_t>(whole).value_or(ids);
  } else if (const auto one = metadata.find_integer<std::int64_t>(whole)) {
    ids.push_back(*one);
  }
  std::erase_if(ids, [](std::int64_t id) { return id < 0; });
  return ids;
}

bool FactReader::find_flag(std::string_view key) {
  return file_.metadata().find_boolean(read_name(key)).value_or(false);
}

void FactReader::find_flag(std::string_view field, std::string_view key, bool& out) {
  const std::string& whole = read_name(key);
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
  const std::string& whole = read_name(key);
  out = checked_count(whole, file_.metadata().integer<std::uint64_t>(whole), limit);
  note_key(field, whole);
}

bool FactReader::find_count(std::string_view field, std::string_view key, std::int64_t limit, int& out) {
  const std::string& whole = read_name(key);
  const auto found = file_.metadata().find_integer<std::uint64_t>(whole);
  if (!found) return false;
  out = checked_count(whole, *found, limit);
  note_key(field, whole);
  return true;
}

std::vector<int> FactReader::find_counts(std::string_view field, std::string_view key, std::int64_t limit) {
  const std::string& whole = read_name(key);
  if (!file_.metadata().is_array(whole)) return {};
  std::vector<int> counts;
  for (const std::uint32_t value : find_integers(key)) counts.push_back(checked_count(whole, value, limit));
  note_key(field, whole);
  return counts;
}

void FactReader::number(std::string_view field, std::string_view key, float& out) {
  const std::string& whole = read_name(key);
  out = file_.metadata().number(whole);
  note_key(field, whole);
}

std::optional<float> FactReader::number_at(std::string_view field, std::string_view key) {
  const std::string& whole = read_name(key);
  const std::optional<float> found = file_.metadata().find_number(whole);
  if (found) note_key(field, whole);
  return found;
}

std::optional<std::string_view> FactReader::find_word(std::string_view field, std::string_view key) {
  const std::string& whole = read_name(key);
  const auto found = file_.metadata().find_string(whole);
  if (found) note_key(field, whole);
  return found;
}

const StringArray* FactReader::find_words(std::string_view field, std::string_view key) {
  const std::string& whole = read_name(key);
  const StringArray* found = file_.metadata().find_strings(whole);
  if (found) note_key(field, whole);
  return found;
}

std::optional<std::vector<bool>> FactReader::find_flags(std::string_view field, std::string_view key) {
  const std::string& whole = read_name(key);
  const MetadataValue* value = file_.metadata().find(whole);
  const auto* array = value ? std::get_if<NumericArray>(&value->value) : nullptr;
  if (!array || array->type != ValueType::BOOL) return std::nullopt;
  std::vector<bool> flags(array->size());
  for (std::size_t i = 0; i < flags.size(); ++i) flags[i] = array->element<std::uint8_t>(i) != 0;
  note_key(field, whole);
  return flags;
}

std::vector<float> FactReader::find_numbers(std::string_view key) {
  const MetadataValue* value = file_.metadata().find(read_name(key));
  const auto* array = value ? std::get_if<NumericArray>(&value->value) : nullptr;
  std::vector<float> numbers;
  for (std::size_t i = 0; array && i < array->size(); ++i) numbers.push_back(float_at(*array, i));
  return numbers;
}

float FactReader::tensor_value(std::string_view name) {
  const TensorInfo* tensor = file_.find(name);
  if (!tensor) refuse_tensor(Reason::MODEL_TENSOR, name, "missing", "one element");
  const DTypeTraits& type = traits(tensor->dtype);
  if (tensor->n_elements() != 1 || type.block_elements != 1) {
    refuse_tensor(Reason::MODEL_TENSOR, name, "shape " + shape_text(*tensor), "one element");
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(tensor->n_bytes));
  file_.read(*tensor, 0, bytes);
  float value = 0;
  type.dequantize(bytes.data(), &value, 1);
  read_tensors_.insert(tensor->name);
  return value;
}

void FactReader::note_omitted(std::string_view key, int size) {
  omitted_ +=
      (omitted_.empty() ? "" : ", ") + prefix_ + std::string(key) + " (" + std::to_string(size) + " by default)";
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
    // What other files of the folder say is no hyper-parameter; null has no effect.
    if (std::ranges::any_of(kOtherFiles, [&](std::string_view part) { return key.starts_with(part); })) continue;
    if (value.type == ValueType::NONE) continue;
    if (!key.starts_with(prefix_) || read_.contains(key)) continue;
    const std::string_view bare = std::string_view(key).substr(prefix_.size());
    if (is_arithmetic(bare) && !is_off(bare, value)) {
      refuse(Reason::MODEL_UNSUPPORTED, bare, found_text(value), "none: imp does not implement this feature");
    }
    unread.push_back(key);
  }
  return unread;
}

}  // namespace imp
