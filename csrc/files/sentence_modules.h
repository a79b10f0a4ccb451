// The modules of a folder of the sentence-transformers library: a transformer, and what it computes of the rows.
#pragma once

#include <string>
#include <vector>

#include "base/file.h"
#include "files/metadata.h"

namespace imp {

// Adds to the metadata of the model at `path` what the other files of its folder say, if it has a modules.json:
// `modules.<i>.<key>`; the keys of the pooling's configuration as `pooling.<key>`, of the n-th product behind it as
// `dense.<n>.<key>`; those of sentence_bert_config.json as `sentence_bert.<key>`, and of
// config_sentence_transformers.json as `sentence_transformers.<key>`. Returns the paths of the weights of the products.
// Throws MODEL_UNSUPPORTED for a module or an order of modules that imp does not compute.
std::vector<std::string> add_sentence_modules(const std::string& path, const PreadFunction& pread, Metadata& metadata);

}  // namespace imp
