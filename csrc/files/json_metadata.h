// A JSON object as metadata with dotted keys, such as config.json.
#pragma once

#include <optional>
#include <string>

#include "base/file.h"
#include "files/metadata.h"

namespace imp {

// Reads a JSON file whose value is an object. A member of an object becomes `outer.inner`. An array of numbers,
// booleans or strings becomes one value; an element of any other array becomes `outer.0`. Integers that fit are u64 or
// i64, other numbers f64. Errors, here and in the getters, are MODEL_CONFIG, or MODEL_LIMIT if the file is too large or
// too deep.
Metadata read_json_metadata(const File& file);

// The same for the file of this name in the folder of `path`; empty if there is none.
std::optional<Metadata> find_json_beside(const std::string& path, const std::string& name,
                                         const PreadFunction& pread = {});

// The same for a file whose value is a list, whose elements become `<key>.0` and so on.
std::optional<Metadata> find_json_list_beside(const std::string& path, const std::string& name, const std::string& key,
                                              const PreadFunction& pread = {});

// Reads a whole file of at most max_bytes; MODEL_LIMIT if it is larger.
std::string read_text(const File& file, std::uint64_t max_bytes);

}  // namespace imp
