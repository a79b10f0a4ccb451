// Which GPUs a build has code for.
#pragma once

#include <string_view>

namespace imp::cuda {

// As CMake spells them, with a space between: "80-real 90a-real"; without -real or -virtual it is both.
std::string_view images_of_build() noexcept;

// Whether one of them runs on such a GPU; 90 is 9.0.
bool serve(std::string_view images, int capability) noexcept;

// Whether what runs on such a GPU was compiled with its products of warpgroups.
bool have_wgmma(std::string_view images, int capability) noexcept;

}  // namespace imp::cuda
