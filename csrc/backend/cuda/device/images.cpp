// Parses the list of images and compares it with a GPU.
#include "backend/cuda/device/images.h"

#include <algorithm>
#include <charconv>

namespace imp::cuda {
namespace {

struct Image {
  int capability = 0;
  char kind = 0;  // 'a': only this capability; 'f': it and later ones of its generation; 0: it and all later ones
  bool is_portable = true;  // PTX: the driver compiles it for later generations
};

Image parse(std::string_view word) noexcept {
  Image image;
  const char* const end = word.data() + word.size();
  const char* const after = std::from_chars(word.data(), end, image.capability).ptr;
  if (after != end && *after != '-') image.kind = *after;
  image.is_portable = !word.ends_with("-real");
  return image;
}

bool serves(const Image& image, int capability) noexcept {
  if (image.kind == 'a' || capability < image.capability) return image.capability == capability;
  const bool is_of_generation = image.capability / 10 == capability / 10;
  return is_of_generation || (image.is_portable && image.kind == 0);
}

template <class Holds>
bool any_of(std::string_view images, const Holds& holds) noexcept {
  while (!images.empty()) {
    const std::string_view word = images.substr(0, images.find(' '));
    images.remove_prefix(std::min(images.size(), word.size() + 1));
    if (!word.empty() && holds(parse(word))) return true;
  }
  return false;
}

}  // namespace

std::string_view images_of_build() noexcept {
  return IMP_CUDA_IMAGES;
}

bool can_run(std::string_view images, int capability) noexcept {
  return any_of(images, [&](const Image& image) { return serves(image, capability); });
}

bool have_wgmma(std::string_view images, int capability) noexcept {
  constexpr int kHopper = 90;
  return capability == kHopper &&
         any_of(images, [](const Image& image) { return image.capability == kHopper && image.kind == 'a'; });
}

}  // namespace imp::cuda
