// Runs every kernel of the kernel list that this processor supports. Kernels with equal reductions must give equal
// bits.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "backend/cpu/cpu_caps.h"
#include "backend/cpu/gemm/activations.h"
#include "backend/cpu/gemm/kernel_list.h"
#include "backend/cpu/gemm/layouts.h"
#include "backend/gemm_registry.h"
#include "bits.h"
#include "tensor/quant/f8_e4m3.h"

namespace proof {

namespace {

using namespace imp;
using namespace imp::cpu;

constexpr std::int64_t kRows = 69;  // rows of weights: four panels, which one row takes at once, and a partial panel

struct Case {
  GemmProblem problem;
  int m;
  std::vector<std::byte> file, panels;  // the weight in both layouts
  std::vector<float> x;
  std::map<ActivationFormat, std::vector<std::byte>> prepared;
};

// Changes F8_E4M3 blocks to what the file readers accept: no NaN codes, and scales in a range.
void make_readable(std::span<std::byte> file, Random& random) {
  quant::BlockF8_E4M3 block;
  for (std::size_t at = 0; at < file.size(); at += sizeof block) {
    std::memcpy(&block, file.data() + at, sizeof block);
    block.scale = random.uniform();
    for (std::uint8_t& code : block.codes) code = static_cast<std::uint8_t>(code - ((code & 0x7F) == 0x7F ? 1 : 0));
    std::memcpy(file.data() + at, &block, sizeof block);
  }
}

// Any bytes are a valid weight of most types. Clearing one bit of each byte excludes infinite and NaN floats.
void fill_weights(Case& c, Random& random, bool is_finite) {
  const auto row = static_cast<std::size_t>(*row_bytes(c.problem.weight, c.problem.k));
  c.file.resize(row * kRows);
  for (std::byte& byte : c.file) byte = std::byte(random.byte() & (is_finite ? 0xBF : 0xFF));
  if (c.problem.weight == DType::F8_E4M3) make_readable(c.file, random);
  c.panels.assign(packed_bytes(c.problem, WeightLayout::panel16), std::byte{0});
  if (!has_layout(c.problem.weight, WeightLayout::panel16)) return;
  for (std::int64_t n = 0; n < kRows; n += kPanelRows) {
    pack_panel(c.problem.weight, c.file.data() + static_cast<std::size_t>(n) * row,
               static_cast<int>(std::min(kRows - n, kPanelRows)), c.problem.k,
               c.panels.data() + static_cast<std::size_t>(n) * row);
  }
}

// Which activations a case has. Mixed: a third of the rows have usual values, a third tiny ones (so that products are
// denormal), a third extreme ones.
enum class Activations { mixed, usual };

void fill_activations(Case& c, Random& random, Activations activations) {
  c.x.resize(static_cast<std::size_t>(c.m * c.problem.k));
  for (std::size_t i = 0; i < c.x.size(); ++i) {
    const std::size_t row = i / static_cast<std::size_t>(c.problem.k);
    const float x = random.uniform();
    c.x[i] = row % 3 == 0 || activations == Activations::usual ? x : row % 3 == 1 ? x * 0x1p-118F : random.extreme();
  }
}

std::vector<std::uint32_t> words_of_bytes(std::span<const std::byte> bytes) {
  std::vector<std::uint32_t> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), words.size() * 4);
  return words;
}

void prepare(Case& c, ActivationFormat format) {
  const auto stride = static_cast<std::size_t>(prepared_bytes(format, c.problem.k));
  const CpuFeatures here = detect_cpu_features();
  std::vector<std::byte>& prepared = c.prepared[format];
  for (const std::string_view isa : known_isas()) {
    if (!here.includes(*isa_features(isa))) continue;
    std::vector<std::byte> rows(stride * static_cast<std::size_t>(c.m));
    for (std::size_t row = 0; row < static_cast<std::size_t>(c.m); ++row) {
      preparer_for(format, cpu_caps(isa))(c.x.data() + row * static_cast<std::size_t>(c.problem.k), c.problem.k,
                                          rows.data() + row * stride);
    }
    if (prepared.empty()) prepared = rows;
    require_equal("activations by " + std::string(isa), words_of_bytes(rows), words_of_bytes(prepared));
  }
}

std::vector<std::uint32_t> run(const GemmKernel& kernel, const Case& c) {
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> scratch(kernel.scratch_bytes(c.problem, c.m) / sizeof(Line) + 1);
  std::vector<float> out(static_cast<std::size_t>(c.m * kRows));
  GemmArgs args;
  args.weight = (kernel.layout == WeightLayout::file ? c.file : c.panels).data();
  args.weight_type = c.problem.weight;
  if (kernel.activations == ActivationFormat::f32) {
    args.activations = reinterpret_cast<const std::byte*>(c.x.data());
    args.activation_stride = c.problem.k * static_cast<std::ptrdiff_t>(sizeof(float));
  } else {
    args.activations = c.prepared.at(kernel.activations).data();
    args.activation_stride = prepared_bytes(kernel.activations, c.problem.k);
  }
  args.out = out.data();
  args.out_stride = kRows;
  args.m = c.m;
  args.n = args.n_end = kRows;
  args.k = c.problem.k;
  args.scratch = scratch.front().bytes;
  kernel.run(args);
  return words_of(out);
}

// Every kernel that multiplies this weight on this processor, validated or not.
std::vector<GemmKernel> kernels_for(const GemmProblem& problem) {
  const DeviceCaps caps = cpu_caps("auto");
  std::vector<GemmKernel> found;
  for (const GemmKernel& kernel : kernel_list()) {
    if (!kernel.any_weight && kernel.weight != problem.weight) continue;
    if (refusal(kernel, problem, caps).empty()) found.push_back(kernel);
  }
  return found;
}

void check_case(const Case& c, const std::string& what) {
  std::map<ReductionId, std::vector<std::uint32_t>> expected;
  for (const GemmKernel& kernel : kernels_for(c.problem)) {
    const auto words = run(kernel, c);
    const auto [first, is_new] = expected.emplace(kernel.reduction, words);
    if (!is_new) require_equal(what + ", " + std::string(kernel.name), words, first->second);
  }
  for (const auto& [reduction, words] : expected) {
    print_digest(what + ", " + std::string(name_of(reduction)), words);
  }
}

// Control: the comparison can fail. Another code of one row changes that row's results and no other row's.
void check_control(Case& c) {
  const auto format = ActivationFormat::q8_block32;
  const auto stride = static_cast<std::size_t>(prepared_bytes(format, c.problem.k));
  for (const GemmKernel& kernel : kernels_for(c.problem)) {
    if (kernel.activations != format) continue;
    const auto before = run(kernel, c);
    for (std::size_t row = 0; row < static_cast<std::size_t>(c.m); ++row) {
      std::byte& code = c.prepared[format][row * stride + 5 * row];
      code ^= std::byte{1};
      const auto after = run(kernel, c);
      code ^= std::byte{1};
      std::vector<std::uint32_t> changed(static_cast<std::size_t>(c.m)), expected(changed.size());
      for (std::size_t i = 0; i < after.size(); ++i) changed[i / kRows] |= before[i] != after[i] ? 1U : 0U;
      expected[row] = 1;
      require_equal("rows that a code changes, " + std::string(kernel.name), changed, expected);
    }
  }
}

// Matrix instructions have not run on hardware, so no plan has them by default.
void check_defaults(const GemmProblem& problem) {
  const GemmRegistry registry(kernel_list(), cpu_caps("auto"));
  for (const PlannedKernel& planned : registry.plan(problem, "", {}).kernels) {
    require_equal("matrix instructions by default, " + std::string(planned.kernel->name),
                  std::vector{planned.kernel->needs.has(CpuFeature::neon_i8mm) ? 1U : 0U}, std::vector{0U});
  }
}

void check_product(Random& random, const GemmProblem& problem, int m, Activations activations = Activations::mixed) {
  Case c;
  c.problem = problem;
  c.m = m;
  fill_weights(c, random, m != 2);
  fill_activations(c, random, activations);
  if (problem.k % 32 == 0) prepare(c, ActivationFormat::q8_block32);
  prepare(c, ActivationFormat::bf16);
  const std::string rows = activations == Activations::usual ? " usual rows of " : " rows of ";
  check_case(c, "gemm: " + std::string(traits(problem.weight).name) + ", " + std::to_string(m) + rows +
                    std::to_string(problem.k));
  if (activations == Activations::usual) check_control(c);
}

}  // namespace

void check_gemms() {
  Random random(3);
  for (const DTypeTraits& type : all_dtypes()) {
    // Runs every number of rows that a tile may have, and more.
    for (const int m : {1, 2, 3, 4, 5, 6, 7, 8, 19}) {
      const std::int64_t k = m < 8 ? 256 : 1280;
      check_product(random, {type.dtype, kRows, k}, m);
      if (type.block_elements == 1) check_product(random, {type.dtype, kRows, k + 1}, m);
    }
  }
  for (const DTypeTraits& type : all_dtypes()) {
    const GemmProblem problem{type.dtype, kRows, 256};
    check_defaults(problem);
    check_product(random, problem, 7, Activations::usual);  // tiles of 3 and 4 rows
  }
}

}  // namespace proof
