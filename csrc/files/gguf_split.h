// Sets of GGUF files: the keys that describe the set.
#pragma once

#include <cstdint>
#include <string>

#include "files/metadata.h"

namespace imp::gguf {

struct Split {
  std::uint64_t n_shards = 1;
  std::uint64_t n_tensors = 0;  // of all shards; undefined if n_shards is 1
};

// Reads the split keys of shard `number`. Throws MODEL_SHARD if they belong to another shard or are invalid.
Split read_split(const Metadata& metadata, std::uint64_t number);

// The name of shard `number` (from 0), from that of the first: "m-00001-of-00003.gguf" gives "m-00002-of-00003.gguf".
std::string shard_name(const std::string& first_name, std::uint64_t number, std::uint64_t n_shards);

// Throws MODEL_SHARD if a key that both files have differs: the files are of different models.
void check_same_model(const Metadata& first, const Metadata& shard);

}  // namespace imp::gguf
