// Upper bounds of a checkpoint's hyper-parameters. Products of any two fit in 63 bits.
#pragma once

#include <cstdint>

namespace imp::model_limits {

inline constexpr std::int64_t kLayers = 1024;
inline constexpr std::int64_t kHeads = 1024;
inline constexpr std::int64_t kHeadDim = std::int64_t{1} << 14;
inline constexpr std::int64_t kStateWidth = std::int64_t{1} << 20;  // of q, k and v of linear attention
inline constexpr std::int64_t kHidden = std::int64_t{1} << 20;
inline constexpr std::int64_t kFfn = std::int64_t{1} << 22;
inline constexpr std::int64_t kExperts = 1024;
inline constexpr std::int64_t kExpertsInAll = std::int64_t{1} << 16;  // of all layers together
inline constexpr std::int64_t kVocabulary = std::int64_t{1} << 22;
inline constexpr std::int64_t kContext = std::int64_t{1} << 24;
inline constexpr std::int64_t kTileSide = std::int64_t{1} << 12;   // in pixels
inline constexpr std::int64_t kImageSide = std::int64_t{1} << 16;  // in pixels
inline constexpr std::int64_t kShuffle = 16;
inline constexpr std::int64_t kImageCells = std::int64_t{1} << 20;

}  // namespace imp::model_limits
