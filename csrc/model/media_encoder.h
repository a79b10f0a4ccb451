// The engine's view of what turns media (images) into rows of a decoder's input.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/rows.h"

namespace imp {

// SHA-256 of what a client sent and of how it is read. Equal digests mean equal parts.
using MediaDigest = std::array<std::byte, 32>;

// What is encoded by itself: a tile of an image, or a whole one.
struct MediaPart {
  std::array<int, 2> grid = {};      // height and width, in pixels
  std::vector<std::uint8_t> pixels;  // [height, width, 3]: red, green, blue
  int n_rows = 0;                    // of its encoding: cells of a sequence
};

struct Media {
  MediaDigest digest = {};
  std::vector<MediaPart> parts;
};

// What an engine needs to know of an encoder.
struct MediaFacts {
  int width = 0;                 // of the rows of an encoding
  int max_rows = 0;              // of the encoding of the largest part
  int max_atomic_cells = 0;      // of the largest part whose rows see each other in the decoder; 0: there is none
  std::int32_t placeholder = 0;  // the token that a prompt has in each cell
  std::int32_t row_token = 0;    // the token that the decoder reads there; only models with layer embeddings use it
};

// Encodes one part at a time, in pieces, so that the steps of the decoder do not wait for a whole image. The size of
// the pieces changes no bit of the result. One thread at a time may use it: that of the decoder.
class MediaEncoder {
 public:
  virtual ~MediaEncoder() = default;
  virtual const MediaFacts& facts() const noexcept = 0;

  // Begins with a part, in place of the one in progress. The medium outlives its encoding. Throws InvalidArgument if
  // the part is none that it can encode.
  virtual void begin(const Media& media, int part) = 0;
  // Works on: about as many products as the decoder takes for `n_rows` rows of a prompt, but at least a piece. Returns
  // the rows that the work is worth. Throws DeviceError.
  virtual int advance(int n_rows) = 0;
  virtual bool is_done() const noexcept = 0;
  // The encoding [n_rows of the part, width] once it is done, valid until the next begin().
  virtual Rows encoding() const noexcept = 0;
};

}  // namespace imp
