// The GPUs that a build has code for.
#pragma once

#include <string_view>

namespace imp::cuda {

// In CMake's notation, separated by spaces: "80-real 90a-real". An entry without -real or -virtual is both.
std::string_view images_of_build() noexcept;

// Whether one of the images runs on such a GPU; 90 means 9.0.
bool can_run(std::string_view images, int capability) noexcept;

// Whether the image for such a GPU was compiled with wgmma.
bool have_wgmma(std::string_view images, int capability) noexcept;

}  // namespace imp::cuda
