// Reads modules.json and the configurations of the modules.
#include "files/sentence_modules.h"

#include <optional>
#include <string_view>

#include "base/error.h"
#include "base/printable.h"
#include "files/json_metadata.h"
#include "files/shard_path.h"

namespace imp {
namespace {

constexpr std::string_view kKnown = "Transformer, Pooling, Dense, Normalize, in this order";

void add_all(const Metadata& from, const std::string& prefix, Metadata& to) {
  for (const auto& [key, value] : from.entries()) to.insert(prefix + key, value);
}

// Reads the modules one after the other.
class Modules {
 public:
  Modules(const std::string& path, const PreadFunction& pread, Metadata& metadata)
      : path_(path), pread_(pread), metadata_(metadata) {}

  bool read_next() {
    const std::string at = "modules." + std::to_string(n_) + ".";
    if (!metadata_.contains(at + "type")) return false;
    take(at + "type", std::string(metadata_.string(at + "path")));
    ++n_;
    return true;
  }
  std::size_t n_modules() const noexcept { return n_; }
  std::vector<std::string> take_weights() { return std::move(weights_); }

 private:
  // The stages of the computation.
  enum class Stage : std::uint8_t { nothing, rows, vector, normalized };

  // Old and new versions of the library have different names in front of the last one.
  void take(const std::string& key, const std::string& folder) {
    const std::string_view type = metadata_.string(key);
    const std::string_view name = type.substr(type.rfind('.') + 1);
    if (name == "Transformer" && stage_ == Stage::nothing && folder.empty()) {
      stage_ = Stage::rows;
    } else if (name == "Pooling" && stage_ == Stage::rows) {
      add_all(config_of(folder), "pooling.", metadata_);
      stage_ = Stage::vector;
    } else if (name == "Dense" && stage_ == Stage::vector) {
      add_all(config_of(folder), "dense." + std::to_string(weights_.size()) + ".", metadata_);
      weights_.push_back(shard_path(path_, "model.safetensors", folder));
    } else if (name == "Normalize" && stage_ == Stage::vector) {
      stage_ = Stage::normalized;
    } else if (name != "Dropout") {  // which concerns training
      throw ModelError(Reason::MODEL_UNSUPPORTED, metadata_.where() + ": modules.json: key " + key + ": " +
                                                      printable(type) + ", expected modules " + std::string(kKnown));
    }
  }
  Metadata config_of(const std::string& folder) const {
    return read_json_metadata(File(shard_path(path_, "config.json", folder), pread_));
  }

  const std::string& path_;
  const PreadFunction& pread_;
  Metadata& metadata_;
  std::size_t n_ = 0;
  Stage stage_ = Stage::nothing;
  std::vector<std::string> weights_;
};

}  // namespace

std::vector<std::string> add_sentence_modules(const std::string& path, const PreadFunction& pread, Metadata& metadata) {
  const std::optional<Metadata> list = find_json_list_beside(path, "modules.json", "modules", pread);
  if (!list) return {};
  add_all(*list, "", metadata);
  Modules modules(path, pread, metadata);
  while (modules.read_next()) {
  }
  if (modules.n_modules() == 0) {
    throw ModelError(Reason::MODEL_UNSUPPORTED,
                     metadata.where() + ": modules.json: no modules, expected " + std::string(kKnown));
  }
  for (const auto& [name, prefix] : {std::pair{"sentence_bert_config.json", "sentence_bert."},
                                     std::pair{"config_sentence_transformers.json", "sentence_transformers."}}) {
    if (const auto found = find_json_beside(path, name, pread)) add_all(*found, prefix, metadata);
  }
  return modules.take_weights();
}

}  // namespace imp
