// Flattens JSON into metadata.
#include "files/json_metadata.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>

#include "base/printable.h"
#include "files/json_reader.h"

namespace imp {
namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{32} << 20;
constexpr std::size_t kMaxConfigDepth = 64;
constexpr std::size_t kMaxConfigKeys = 65'536;
// Each key is stored with all outer names, so long ones would multiply.
constexpr std::size_t kMaxDottedKeyBytes = 1024;
constexpr JsonRules kRules{
    .form = Reason::MODEL_CONFIG, .string = Reason::MODEL_CONFIG, .max_depth = kMaxConfigDepth, .has_non_finite = true};

MetadataValue number_value(const JsonReader& reader) {
  const std::string& digits = reader.value();
  if (const auto value = json_unsigned(digits)) return {ValueType::U64, *value};
  std::int64_t integer = 0;
  const char* const end = digits.data() + digits.size();
  if (const auto [rest, error] = std::from_chars(digits.data(), end, integer); error == std::errc() && rest == end) {
    return {ValueType::I64, integer};
  }
  double number = 0;
  const auto [rest, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc()) reader.fail("number " + printable(digits) + " out of range");
  return {ValueType::F64, number};
}

MetadataValue scalar_value(const JsonReader& reader, JsonEvent event) {
  switch (event) {
    case JsonEvent::STRING:
      return {ValueType::STRING, reader.value()};
    case JsonEvent::NUMBER:
      return number_value(reader);
    case JsonEvent::TRUE:
    case JsonEvent::FALSE:
      return {ValueType::BOOL, event == JsonEvent::TRUE};
    default:
      return {};
  }
}

template <class T>
NumericArray packed_as(ValueType type, const std::vector<MetadataValue>& scalars) {
  NumericArray array{type, {}};
  array.bytes.reserve(scalars.size() * sizeof(T));
  for (const MetadataValue& scalar : scalars) {
    const T number = std::visit(
        []<class V>(const V& value) -> T {
          if constexpr (std::is_arithmetic_v<V>) return static_cast<T>(value);
          return T{};  // callers pass only numbers and booleans
        },
        scalar.value);
    const auto bytes = std::as_bytes(std::span(&number, 1));
    array.bytes.insert(array.bytes.end(), bytes.begin(), bytes.end());
  }
  return array;
}

// One array value for scalars of one kind; empty for mixed ones.
std::optional<MetadataValue> packed(const std::vector<MetadataValue>& scalars) {
  const auto all = [&](auto... types) {
    return std::ranges::all_of(scalars, [&](const MetadataValue& s) { return ((s.type == types) || ...); });
  };
  if (scalars.empty()) return MetadataValue{ValueType::NONE, NumericArray{ValueType::NONE, {}}};
  if (all(ValueType::BOOL)) return MetadataValue{ValueType::BOOL, packed_as<std::uint8_t>(ValueType::BOOL, scalars)};
  if (all(ValueType::U64)) return MetadataValue{ValueType::U64, packed_as<std::uint64_t>(ValueType::U64, scalars)};
  const bool small = std::ranges::all_of(scalars, [](const MetadataValue& s) {
    const auto* number = std::get_if<std::uint64_t>(&s.value);
    return !number || std::in_range<std::int64_t>(*number);
  });
  if (small && all(ValueType::U64, ValueType::I64)) {
    return MetadataValue{ValueType::I64, packed_as<std::int64_t>(ValueType::I64, scalars)};
  }
  if (all(ValueType::U64, ValueType::I64, ValueType::F64)) {
    return MetadataValue{ValueType::F64, packed_as<double>(ValueType::F64, scalars)};
  }
  if (!all(ValueType::STRING)) return std::nullopt;
  StringArray strings;
  for (const MetadataValue& scalar : scalars) {
    const auto& text = std::get<std::string>(scalar.value);
    std::ranges::copy(text, strings.append(text.size()).begin());
  }
  return MetadataValue{ValueType::STRING, std::move(strings)};
}

class Flattener {
 public:
  Flattener(JsonReader& reader, Metadata& metadata) : reader_(reader), metadata_(metadata) {}

  void run() {
    if (reader_.next() != JsonEvent::BEGIN_OBJECT) reader_.fail("expected an object");
    levels_.push_back({});
    for (JsonEvent event = reader_.next(); event != JsonEvent::END; event = reader_.next()) take(event);
  }

 private:
  struct Level {
    bool is_array = false;
    bool by_index = false;               // an array that contains a container: each element is its own entry
    std::string key;                     // of the container; in an object, of the current member
    std::string member;                  // the current member of an object
    std::size_t n_values = 0;            // so far
    std::vector<MetadataValue> scalars;  // of an array without containers
  };

  void take(JsonEvent event) {
    switch (event) {
      case JsonEvent::KEY:
        levels_.back().member = reader_.value();
        ++levels_.back().n_values;
        return;
      case JsonEvent::BEGIN_OBJECT:
      case JsonEvent::BEGIN_ARRAY: {
        if (levels_.back().is_array) index_elements(levels_.back());
        std::string key = next_key();
        levels_.push_back({event == JsonEvent::BEGIN_ARRAY, false, std::move(key), {}, 0, {}});
        return;
      }
      case JsonEvent::END_OBJECT:
      case JsonEvent::END_ARRAY:
        finish(levels_.back());
        levels_.pop_back();
        return;
      default:
        scalar(scalar_value(reader_, event));
    }
  }

  void scalar(MetadataValue value) {
    Level& level = levels_.back();
    if (level.is_array && !level.by_index) {
      level.scalars.push_back(std::move(value));
    } else {
      insert(next_key(), std::move(value));
    }
  }

  // The key of the current value.
  std::string next_key() {
    Level& level = levels_.back();
    const std::string name = level.is_array ? std::to_string(level.n_values++) : level.member;
    std::string key = level.key.empty() ? name : level.key + "." + name;
    if (key.size() > kMaxDottedKeyBytes) {
      reader_.fail(Reason::MODEL_LIMIT, "names of more than " + std::to_string(kMaxDottedKeyBytes) + " bytes in all");
    }
    return key;
  }

  void index_elements(Level& level) {
    level.by_index = true;
    for (MetadataValue& value : std::exchange(level.scalars, {})) insert(next_key(), std::move(value));
  }

  void finish(Level& level) {
    if (!level.is_array) return finish_object(level);
    if (level.by_index) return;
    if (auto array = packed(level.scalars)) {
      insert(level.key, std::move(*array));
    } else {
      index_elements(level);
    }
  }

  // An empty object leaves no other trace.
  void finish_object(Level& level) {
    const bool is_document = levels_.size() == 1;
    if (level.n_values == 0 && !is_document) insert(level.key, *packed({}));
  }

  void insert(std::string key, MetadataValue value) {
    if (metadata_.entries().size() == kMaxConfigKeys) {
      reader_.fail(Reason::MODEL_LIMIT, "more than " + std::to_string(kMaxConfigKeys) + " values");
    }
    const std::string shown = printable(key);
    if (!metadata_.insert(std::move(key), std::move(value))) reader_.fail("key " + shown + " occurs twice");
  }

  JsonReader& reader_;
  Metadata& metadata_;
  std::vector<Level> levels_;
};

Metadata flattened(const std::string& text, const std::string& where) {
  constexpr Reason kReason = Reason::MODEL_CONFIG;
  Metadata metadata(
      where, {.missing_key = kReason, .wrong_type = kReason, .wrong_value = kReason, .any_number_is_float = true});
  JsonReader reader(text, where, kRules);
  Flattener(reader, metadata).run();
  return metadata;
}

// Empty if there is none.
std::optional<File> find_beside(const std::string& path, const std::string& name, const PreadFunction& pread) {
  const auto beside = std::filesystem::path(path).replace_filename(name);
  std::error_code error;  // File reports any other error
  if (std::filesystem::status(beside, error).type() == std::filesystem::file_type::not_found) return std::nullopt;
  return File(beside.string(), pread);
}

}  // namespace

std::string read_text(const File& file, std::uint64_t max_bytes) {
  if (file.size_bytes() > max_bytes) {
    throw ModelError(Reason::MODEL_LIMIT, file.name() + ": has " + std::to_string(file.size_bytes()) +
                                              " bytes, limit " + std::to_string(max_bytes));
  }
  std::string text(file.size_bytes(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  file.check_unchanged();
  return text;
}

Metadata read_json_metadata(const File& file) {
  return flattened(read_text(file, kMaxConfigBytes), file.name());
}

std::optional<Metadata> find_json_beside(const std::string& path, const std::string& name, const PreadFunction& pread) {
  const std::optional<File> file = find_beside(path, name, pread);
  return file ? std::optional(read_json_metadata(*file)) : std::nullopt;
}

std::optional<Metadata> find_json_list_beside(const std::string& path, const std::string& name, const std::string& key,
                                              const PreadFunction& pread) {
  const std::optional<File> file = find_beside(path, name, pread);
  if (!file) return std::nullopt;
  Metadata metadata = flattened("{\"" + key + "\":" + read_text(*file, kMaxConfigBytes) + "}", file->name());
  for (const auto& [found, value] : metadata.entries()) {
    if (found != key && !found.starts_with(key + "."))
      throw ModelError(Reason::MODEL_CONFIG, file->name() + ": " + printable(found) + ": expected a list alone");
  }
  return metadata;
}

}  // namespace imp
