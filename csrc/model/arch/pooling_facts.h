// What a file says about vectors of texts.
#pragma once

#include <optional>
#include <string_view>

#include "model/arch/fact_reader.h"

namespace imp {

// The kind of pooling, and with `modules.json` the products behind it and the longest text. A file that says nothing
// has no pooling: it is never guessed.
void read_gguf_pooling(FactReader& facts);
void read_hf_pooling(FactReader& facts);

}  // namespace imp
