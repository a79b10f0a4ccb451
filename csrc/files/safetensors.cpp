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
#include "files/shard_path.h"
#include "files/sharded_file.h"

namespace imp {
namespace {

// Refuses adapters and embedding models. Other files of their directory identify them.
void refuse_other_kinds(const std::filesystem::path& path) {
  const auto has = [&](const char* name) {
    std::error_code error;  // an unreadable file is reported when it is read
    return std::filesystem::exists(std::filesystem::path(path).replace_filename(name), error);
  };
  const auto refuse = [&](const std::string& found, const char* what) {
    throw ModelError(Reason::MODEL_UNSUPPORTED,
                     printable(path.filename().string()) + ": " + found + ": this is " + what);
  };
  if (has("adapter_config.json") && (path.filename().string().starts_with("adapter_") || !has("config.json"))) {
    refuse("the directory has an adapter_config.json",
           "a LoRA adapter, not a model; merge it into its base model and give that directory");
  }
  if (has("modules.json")) {
    refuse("the directory has a modules.json", "an embedding model; imp generates text; use a server for embeddings");
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

std::unique_ptr<ModelFile> with_scales(std::unique_ptr<ModelFile> file) {
  return with_float8_scales(with_mxfp4_scales(std::move(file)));
}

}  // namespace

std::unique_ptr<ModelFile> open_safetensors(const std::string& path, File file, const PreadFunction& pread) {
  refuse_other_kinds(path);
  safetensors::Header header = safetensors::read_header(file);
  Metadata metadata = read_config(path, pread);
  add_metadata(header, metadata);
  std::vector<File> files;
  files.push_back(std::move(file));
  return with_scales(std::make_unique<ShardedFile>("safetensors", path, std::move(files), std::move(metadata),
                                                   std::move(header.tensors), Reason::MODEL_DUPLICATE));
}

std::unique_ptr<ModelFile> open_safetensors_index(const std::string& path, File file, const PreadFunction& pread) {
  refuse_other_kinds(path);
  const safetensors::Index index = safetensors::read_index(file);
  std::vector<std::string> paths;  // all are checked before the first is opened
  for (const std::string& shard : index.shards) paths.push_back(shard_path(path, shard));
  std::vector<File> files;
  std::vector<TensorInfo> tensors;
  for (std::size_t shard = 0; shard < paths.size(); ++shard) {
    files.emplace_back(paths[shard], pread, Links::REFUSE);
    safetensors::Header header = safetensors::read_header(files.back());
    check_against_index(files.back(), header, index, shard);
    for (TensorInfo& tensor : header.tensors) {
      tensor.shard = static_cast<std::uint32_t>(shard);
      tensors.push_back(std::move(tensor));
    }
  }
  return with_scales(std::make_unique<ShardedFile>("safetensors", path, std::move(files), read_config(path, pread),
                                                   std::move(tensors), Reason::MODEL_SHARD));
}

}  // namespace imp
