// A family of vision towers in one format: its name in checkpoints, and the reader of its keys.
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/model_file.h"
#include "model/arch/architecture.h"
#include "model/arch/fact_reader.h"
#include "model/arch/vision/vision_config.h"

namespace imp {

// What a reader fills in. `facts` reads the keys of the tower, and its configuration becomes that of the layers.
struct VisionFacts {
  FactReader facts;
  VisionConfig config;
};

struct VisionArchitecture {
  ModelFormat format;
  std::string_view name;  // of the projector in GGUF, of the whole model in config.json
  void (*read)(VisionFacts&);
  const TensorNames* names;
  VisionTensors tensors;
  std::array<std::string_view, 2> prefixes;  // of all tensors of the tower

  bool owns(std::string_view tensor) const noexcept {
    constexpr std::string_view kOfAudio = "mm.a.";  // a projector's file may have two towers
    if (tensor.starts_with(kOfAudio)) return false;
    return tensor.starts_with(prefixes[0]) || tensor.starts_with(prefixes[1]);
  }
};

using VisionFamily = std::span<const VisionArchitecture>;

VisionFamily gemma3_vision() noexcept;
VisionFamily gemma4_vision() noexcept;
VisionFamily idefics3_vision() noexcept;
VisionFamily qwen3_vl_vision() noexcept;

}  // namespace imp
