// Reads a checkpoint's keys into a configuration and notes the origin of each fact.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "files/model_file.h"
#include "model/arch/tensor_names.h"
#include "model/config/model_config.h"
#include "model/config/origins.h"

namespace imp {

// Keys are given without the common prefix of hyper-parameters ("<architecture>." in GGUF).
class FactReader {
 public:
  FactReader(const ModelFile& file, std::string_view prefix, const TensorNames& names)
      : file_(file), prefix_(prefix), names_(names) {}

  ModelConfig config;
  Origins origins;

  // Files without `key` may have its value under another name.
  void accept(std::string_view key, std::string_view other) { others_.insert_or_assign(std::string(key), other); }

  const ModelFile& file() const noexcept { return file_; }
  const TensorNames& names() const noexcept { return names_; }
  bool is_part() const noexcept { return prefix_.ends_with("_config."); }  // of a larger model
  bool has_tensor(std::string_view name) const noexcept { return file_.find(name) != nullptr; }
  bool has(std::string_view key);                    // null counts as missing
  bool has_section(std::string_view section) const;  // an object of config.json
  bool has_members(std::string_view section) const;  // one that is not empty
  bool is_null(std::string_view key);                // for keys where null and a missing key differ
  // Marks a key that has no effect as read: otherwise unread_keys() reports it.
  void ignore(std::string_view key) { read_name(key); }
  void ignore_section(std::string_view section);  // the same for all keys of an object

  // Any integer. Notes no origin.
  std::optional<std::uint64_t> find_integer(std::string_view key);

  std::vector<std::uint32_t> find_integers(std::string_view key);  // one, or a list
  // The same of a key outside the prefix.
  std::vector<std::uint32_t> find_whole_integers(std::string_view whole_key) const;
  std::vector<std::int64_t> find_token_ids(std::string_view key);  // the same without negative ones, which mean none
  bool find_flag(std::string_view key);                            // false if missing
  void find_flag(std::string_view field, std::string_view key, bool& out);

  // Counts: at least 1 (MODEL_VALUE), at most `limit` (MODEL_LIMIT).
  void count(std::string_view field, std::string_view key, std::int64_t limit, int& out);
  bool find_count(std::string_view field, std::string_view key, std::int64_t limit, int& out);

  void number(std::string_view field, std::string_view key, float& out);
  template <class Number>
  bool find_number(std::string_view field, std::string_view key, Number& out) {
    const std::optional<float> found = number_at(field, key);
    if (found) out = *found;
    return found.has_value();
  }
  // A list of counts; empty if the key is missing or no list.
  std::vector<int> find_counts(std::string_view field, std::string_view key, std::int64_t limit);
  std::optional<std::string_view> find_word(std::string_view field, std::string_view key);
  const StringArray* find_words(std::string_view field, std::string_view key);
  std::optional<std::vector<bool>> find_flags(std::string_view field, std::string_view key);

  std::vector<float> find_numbers(std::string_view key);  // empty if missing

  // The value of a tensor of one element. Throws MODEL_TENSOR if there is no such tensor.
  float tensor_value(std::string_view name);
  const std::set<std::string>& read_tensors() const noexcept { return read_tensors_; }

  // A size that the file does not state. A tensor of another shape shows that it is wrong.
  void note_omitted(std::string_view key, int size);
  const std::string& omitted() const noexcept { return omitted_; }

  void note_tensor(std::string_view field, std::string_view tensor);
  void note_key(std::string_view field, std::string_view whole_key);

  // Throws `<file>: key <key>: <found>, expected <expected>`.
  [[noreturn]] void refuse(Reason reason, std::string_view key, std::string_view found,
                           std::string_view expected) const;
  [[noreturn]] void refuse_tensor(Reason reason, std::string_view tensor, std::string_view found,
                                  std::string_view expected) const;

  // The keys with the prefix that nothing has read, in file order. Throws MODEL_UNSUPPORTED if one of them affects the
  // arithmetic and its value does not disable it.
  std::vector<std::string> unread_keys() const;

 private:
  const std::string& read_name(std::string_view key);  // marks the key as read; returns its full name
  int checked_count(const std::string& key, std::uint64_t value, std::int64_t limit) const;
  std::optional<float> number_at(std::string_view field, std::string_view key);

  const ModelFile& file_;
  std::string prefix_;
  const TensorNames& names_;
  std::map<std::string, std::string, std::less<>> others_;  // of keys
  std::set<std::string, std::less<>> read_;
  std::set<std::string> read_tensors_;
  std::string omitted_;  // each with the size that it has by default
};

}  // namespace imp
