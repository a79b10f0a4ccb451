// What the decoder and the tower of Qwen 3 VL both know.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace imp {

// The layers of the tower whose output DeepStack adds to rows of the decoder.
inline constexpr std::string_view kHfDeepstackKey = "vision_config.deepstack_visual_indexes";
inline constexpr std::array<std::uint32_t, 3> kHfDeepstackLayers = {8, 16, 24};  // of files that do not say

}  // namespace imp
