// Chooses the model file of a directory.
#pragma once

#include <string>
#include <string_view>

namespace imp {

// The path of the model in `directory`: the only GGUF file, apart from projectors, which are named mmproj…; or the
// safetensors index, else model.safetensors, else the only safetensors file. Looks only at names and opens no file.
// Throws MODEL_FORMAT if both formats exist or there are only PyTorch's files, MODEL_SHARD if there are several
// safetensors files without an index or that name, and MODEL_MISSING if there is no model or there are several GGUF
// files.
std::string model_in_directory(const std::string& directory);

// A name that PyTorch's checkpoints have.
bool is_pytorch_name(std::string_view name);

// The advice in an error about such a file.
inline constexpr std::string_view kPytorchConversion =
    "convert it with save_pretrained() of transformers, which writes safetensors, or with llama.cpp's "
    "convert_hf_to_gguf.py";

}  // namespace imp
