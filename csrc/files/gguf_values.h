// The key-values of a GGUF file.
#pragma once

#include <cstdint>

#include "files/byte_reader.h"
#include "files/metadata.h"

namespace imp::gguf {

// Reads n_keys key-values from `reader` into `metadata`, whose where() is the file's name.
void read_key_values(ByteReader& reader, std::uint64_t n_keys, Metadata& metadata);

// Throws MODEL_STRING unless `name` is UTF-8 without control characters; `what` describes it.
void check_name(std::string_view where, std::string_view what, std::string_view name);

}  // namespace imp::gguf
