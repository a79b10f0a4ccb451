// Fills blocks with random bits, and chooses scales that give the requested deviation. A block's bits depend only on
// its position.
#include "files/synthetic.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tensor/half.h"
#include "tensor/quant/f8_e4m3.h"
#include "tensor/quant/mxfp4.h"
#include "tensor/quant/q4_0.h"
#include "tensor/quant/q4_k.h"
#include "tensor/quant/q6_k.h"
#include "tensor/quant/q8_0.h"

namespace imp {
namespace {

// Standard deviations of integers made of uniform random bits.
constexpr float kNibbleDeviation = 4.61F;      // 0 … 15
constexpr float kSixBitDeviation = 18.47F;     // 0 … 63
constexpr float kByteDeviation = 73.9F;        // -128 … 127
constexpr float kFp4Deviation = 5.852F;        // the levels of MXFP4
constexpr float kFp8Deviation = 107.24F;       // the numbers of F8_E4M3, the largest twice
constexpr float kUniformDeviation = 0.57735F;  // -1 … 1

// A stream of random bits that can start at any block (SplitMix64).
class Bits {
 public:
  Bits(std::uint64_t tensor, std::uint64_t block) : state_((tensor << 44) ^ (block * 0x9E3779B97F4A7C15ULL)) {}
  std::uint64_t next() noexcept {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  void fill(void* to, std::size_t n_bytes) noexcept {
    auto* out = static_cast<std::byte*>(to);
    for (std::size_t i = 0; i < n_bytes; i += 8) {
      const std::uint64_t word = next();
      std::memcpy(out + i, &word, std::min<std::size_t>(8, n_bytes - i));
    }
  }
  // Uniform in [-1, 1).
  float uniform() noexcept { return static_cast<float>(static_cast<std::int64_t>(next()) >> 40) * 0x1p-23F; }

 private:
  std::uint64_t state_;
};

using FillBlock = void (*)(Bits& bits, float mean, float deviation, std::byte* out);

template <class Block>
void put(const Block& block, std::byte* out) {
  std::memcpy(out, &block, sizeof block);
}

void fill_f32(Bits& bits, float mean, float deviation, std::byte* out) {
  put(mean + bits.uniform() * (deviation / kUniformDeviation), out);
}

void fill_f16(Bits& bits, float, float deviation, std::byte* out) {
  put(f32_to_f16(bits.uniform() * (deviation / kUniformDeviation)), out);
}

void fill_bf16(Bits& bits, float, float deviation, std::byte* out) {
  put(f32_to_bf16(bits.uniform() * (deviation / kUniformDeviation)), out);
}

void fill_q4_0(Bits& bits, float, float deviation, std::byte* out) {
  quant::BlockQ4_0 block;
  bits.fill(&block, sizeof block);
  block.d = f32_to_f16(deviation / kNibbleDeviation);
  put(block, out);
}

void fill_q8_0(Bits& bits, float, float deviation, std::byte* out) {
  quant::BlockQ8_0 block;
  bits.fill(&block, sizeof block);
  block.d = f32_to_f16(deviation / kByteDeviation);
  put(block, out);
}

void fill_q4_k(Bits& bits, float, float deviation, std::byte* out) {
  quant::BlockQ4_K block;
  bits.fill(&block, sizeof block);
  // Every 6-bit scale and min is 33 (0x21 in the eight low entries, its parts in the four mixed ones).
  std::fill_n(block.scales, 8, std::uint8_t{0xA1});
  std::fill_n(block.scales + 8, 4, std::uint8_t{0x11});
  const float step = deviation / kNibbleDeviation / 33.0F;
  block.d = f32_to_f16(step);
  block.dmin = f32_to_f16(step * 7.5F);  // moves the centre of 0 … 15 to zero
  put(block, out);
}

void fill_q6_k(Bits& bits, float, float deviation, std::byte* out) {
  quant::BlockQ6_K block;
  bits.fill(&block, sizeof block);
  std::fill_n(block.scales, 16, std::int8_t{64});
  block.d = f32_to_f16(deviation / kSixBitDeviation / 64.0F);
  put(block, out);
}

void fill_mxfp4(Bits& bits, float, float deviation, std::byte* out) {
  quant::BlockMXFP4 block;
  bits.fill(&block, sizeof block);
  // Scales are powers of two: the two nearest to the ideal one, as often as the variance requires.
  const float scale = deviation / kFp4Deviation;
  const std::uint32_t exponent = std::bit_cast<std::uint32_t>(scale) >> 23;
  const float above = scale / std::bit_cast<float>(exponent << 23);  // 1 … 2
  const bool is_next = bits.uniform() * 0.5F + 0.5F < (above * above - 1.0F) / 3.0F;
  block.exponent = static_cast<std::uint8_t>(exponent + (is_next ? 2 : 1));
  put(block, out);
}

void fill_f8_e4m3(Bits& bits, float, float deviation, std::byte* out) {
  quant::BlockF8_E4M3 block;
  bits.fill(&block, sizeof block);
  block.scale = deviation / kFp8Deviation;
  for (std::uint8_t& code : block.codes) code = static_cast<std::uint8_t>(code - ((code & 0x7F) == 0x7F ? 1 : 0));
  put(block, out);
}

constexpr std::pair<DType, FillBlock> kFills[] = {
    {DType::F32, fill_f32},   {DType::F16, fill_f16},     {DType::BF16, fill_bf16},
    {DType::Q4_0, fill_q4_0}, {DType::Q8_0, fill_q8_0},   {DType::Q4_K, fill_q4_k},
    {DType::Q6_K, fill_q6_k}, {DType::MXFP4, fill_mxfp4}, {DType::F8_E4M3, fill_f8_e4m3},
};

FillBlock fill_of(const SyntheticTensor& tensor) {
  std::string known;
  for (const auto& [dtype, fill] : kFills) {
    if (dtype == tensor.dtype) return fill;
    known += (known.empty() ? "" : ", ") + std::string(traits(dtype).name);
  }
  throw FieldInvalid(tensor.name,
                     "random weights of type " + std::string(traits(tensor.dtype).name) + ", expected one of " + known);
}

class SyntheticFile : public ModelFile {
 public:
  SyntheticFile(Metadata metadata, const std::vector<SyntheticTensor>& tensors)
      : ModelFile("random weights", std::move(metadata)) {
    std::vector<TensorInfo> table;
    std::uint64_t offset = 0;
    for (const SyntheticTensor& tensor : tensors) {
      table.push_back(describe(tensor, offset));
      offset += table.back().n_bytes;
      recipes_.push_back({fill_of(tensor), tensor.mean, tensor.deviation});
    }
    if (const std::string* twice = index_tensors(std::move(table))) {
      throw FieldInvalid(*twice, "named twice");
    }
  }

  std::string_view format() const noexcept override { return "synthetic"; }
  std::span<const std::shared_ptr<const File>> files() const noexcept override { return {}; }

  void read(const TensorInfo& tensor, std::uint64_t offset, std::span<std::byte> out) const override {
    const auto index = static_cast<std::size_t>(&tensor - tensors().data());
    IMP_CHECK(index < recipes_.size() && offset + out.size() <= tensor.n_bytes);
    const auto block_bytes = static_cast<std::uint64_t>(traits(tensor.dtype).block_bytes);
    std::byte whole[sizeof(quant::BlockQ6_K)];
    for (std::uint64_t at = offset, done = 0; done < out.size();) {
      const std::uint64_t block = at / block_bytes;
      const std::uint64_t skip = at % block_bytes;
      const std::uint64_t n = std::min(block_bytes - skip, out.size() - done);
      Bits bits(index + 1, block + 1);
      recipes_[index].fill(bits, recipes_[index].mean, recipes_[index].deviation, whole);
      std::memcpy(out.data() + done, whole + skip, n);
      at += n;
      done += n;
    }
  }

 private:
  struct Recipe {
    FillBlock fill;
    float mean;
    float deviation;
  };

  static TensorInfo describe(const SyntheticTensor& tensor, std::uint64_t offset) {
    TensorInfo info;
    info.name = tensor.name;
    info.dtype = tensor.dtype;
    info.n_dims = static_cast<int>(tensor.dims.size());
    info.file_offset = offset;
    std::optional<std::int64_t> n_bytes;
    if (!tensor.dims.empty() && tensor.dims.size() <= info.dims.size()) {
      std::copy(tensor.dims.begin(), tensor.dims.end(), info.dims.begin());
      n_bytes = row_bytes(tensor.dtype, tensor.dims[0]);
    }
    if (!n_bytes || std::ranges::any_of(tensor.dims, [](std::int64_t dim) { return dim < 1; })) {
      throw FieldInvalid(tensor.name, "a shape that does not fill blocks");
    }
    info.n_bytes = static_cast<std::uint64_t>(*n_bytes * (info.n_elements() / info.dims[0]));
    return info;
  }

  std::vector<Recipe> recipes_;
};

}  // namespace

std::unique_ptr<ModelFile> make_synthetic_file(Metadata metadata, const std::vector<SyntheticTensor>& tensors) {
  return std::make_unique<SyntheticFile>(std::move(metadata), tensors);
}

}  // namespace imp
