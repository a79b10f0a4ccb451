// Combines headers, index and configuration.
#include "files/safetensors.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/printable.h"
#include "files/float8_file.h"
#include "files/json_metadata.h"
#include "files/mxfp4_file.h"
#include "files/safetensors_header.h"
#include "files/safetensors_index.h"
#include "files/sentence_modules.h"
#include "files/shard_path.h"
#include "files/sharded_file.h"

namespace imp {
namespace {

// Another file of the directory identifies an adapter.
void refuse_adapters(const std::filesystem::path& path) {
  const auto has = [&](const char* name) {
    std::error_code error;  // an unreadable file is reported when it is read
    return std::filesystem::exists(std::filesystem::path(path).replace_filename(name), error);
  };
  if (has("adapter_config.json") && (path.filename().string().starts_with("adapter_") || !has("config.json"))) {
    throw ModelError(Reason::MODEL_UNSUPPORTED,
                     printable(path.filename().string()) +
                         ": the directory has an adapter_config.json: this is a LoRA adapter, not a model; merge it "
                         "into its base model and give that directory");
  }
}

// The keys of config.json and, with the prefix `generation_config.`, those of generation_config.json if it exists.
Metadata read_config(const std::string& path, const PreadFunction& pread) {
  const auto config = std::filesystem::path(path).replace_filename("config.json");
  Metadata metadata = read_json_metadata(File(config.string(), pread));
  if (const auto defaults = find_json_beside(path, "generation_config.json", pread)) {
    for (const auto& [key, value] : defaults->entries()) metadata.insert("generation_config." + key, value);
  }
  return metadata;
}

void add_metadata(const safetensors::Header& header, Metadata& metadata) {
  for (const auto& [key, text] : header.metadata) {
    if (!metadata.insert("__metadata__." + key, {ValueType::STRING, text})) {
      throw ModelError(Reason::MODEL_DUPLICATE,
                       metadata.where() + ": key __metadata__." + printable(key) + ": occurs twice, expected once");
    }
  }
}

// The shard must have exactly the tensors that the index places there.
void check_against_index(const File& file, const safetensors::Header& header, const safetensors::Index& index,
                         std::size_t shard) {
  for (const TensorInfo& tensor : header.tensors) {
    const auto entry = std::ranges::lower_bound(index.entries, tensor.name, {}, &safetensors::Index::Entry::tensor);
    if (entry == index.entries.end() || entry->tensor != tensor.name || entry->shard != shard) {
      throw ModelError(Reason::MODEL_SHARD, file.name() + ": tensor " + printable(tensor.name, 128) +
                                                ": is in this file, but the index does not list it here");
    }
  }
  const auto expected = std::ranges::count(index.entries, shard, &safetensors::Index::Entry::shard);
  if (static_cast<std::size_t>(expected) == header.tensors.size()) return;
  for (const auto& entry : index.entries) {
    const bool here = std::ranges::any_of(header.tensors, [&](const TensorInfo& t) { return t.name == entry.tensor; });
    if (entry.shard == shard && !here) {
      throw ModelError(Reason::MODEL_SHARD, file.name() + ": tensor " + printable(entry.tensor, 128) +
                                                ": is missing, but the index lists it in this file");
    }
  }
}

// The open files of a model and their tensors.
struct Parts {
  std::vector<File> files;
  std::vector<TensorInfo> tensors;

  // The tensors of a file, whose names get a prefix.
  void add(File file, std::vector<TensorInfo> of_file, const std::string& prefix = "") {
    for (TensorInfo& tensor : of_file) {
      tensor.name.insert(0, prefix);
      tensor.shard = static_cast<std::uint32_t>(files.size());
      tensors.push_back(std::move(tensor));
    }
    files.push_back(std::move(file));
  }
};

std::unique_ptr<ModelFile> with_scales(std::unique_ptr<ModelFile> file) {
  return with_float8_scales(with_mxfp4_scales(std::move(file)));
}

// Adds what other files of the directory have.
std::unique_ptr<ModelFile> complete(const std::string& path, Parts parts, Metadata metadata, Reason duplicate,
                                    const PreadFunction& pread) {
  const std::vector<std::string> products = add_sentence_modules(path, pread, metadata);
  for (std::size_t i = 0; i < products.size(); ++i) {
    File file(products[i], pread, Links::REFUSE);
    std::vector<TensorInfo> tensors = safetensors::read_header(file).tensors;
    parts.add(std::move(file), std::move(tensors), "dense." + std::to_string(i) + ".");
  }
  return with_scales(std::make_unique<ShardedFile>("safetensors", path, std::move(parts.files), std::move(metadata),
                                                   std::move(parts.tensors), duplicate));
}

}  // namespace

std::unique_ptr<ModelFile> open_safetensors(const std::string& path, File file, const PreadFunction& pread) {
  refuse_adapters(path);
  safetensors::Header header = safetensors::read_header(file);
  Metadata metadata = read_config(path, pread);
  add_metadata(header, metadata);
  Parts parts;
  parts.add(std::move(file), std::move(header.tensors));
  return complete(path, std::move(parts), std::move(metadata), Reason::MODEL_DUPLICATE, pread);
}

std::unique_ptr<ModelFile> open_safetensors_index(const std::string& path, File file, const PreadFunction& pread) {
  refuse_adapters(path);
  const safetensors::Index index = safetensors::read_index(file);
  std::vector<std::string> paths;  // all are checked before the first is opened
  for (const std::string& shard : index.shards) paths.push_back(shard_path(path, shard));
  Parts parts;
  for (std::size_t shard = 0; shard < paths.size(); ++shard) {
    File part(paths[shard], pread, Links::REFUSE);
    safetensors::Header header = safetensors::read_header(part);
    check_against_index(part, header, index, shard);
    parts.add(std::move(part), std::move(header.tensors));
  }
  return complete(path, std::move(parts), read_config(path, pread), Reason::MODEL_SHARD, pread);
}

}  // namespace imp
