// A JSON object as metadata: config.json's facts under dotted keys.
#pragma once

#include <string>

#include "base/file.h"
#include "files/metadata.h"

namespace imp {

// Reads a JSON file whose value is an object. A member of an object is `outer.inner`; an array of numbers, booleans or
// strings is one value, an element of any other array is `outer.0`. Integers that fit are u64 or i64, other numbers
// f64. Refusals, now and by the getters later, are MODEL_CONFIG; MODEL_LIMIT where the file is too large or too deep.
Metadata read_json_metadata(const File& file);

// The whole of a file of at most max_bytes; MODEL_LIMIT where it has more.
std::string read_text(const File& file, std::uint64_t max_bytes);

}  // namespace imp
