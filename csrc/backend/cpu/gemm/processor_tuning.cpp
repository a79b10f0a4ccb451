// The table of processors. A new one needs a row here. `imp tune` finds its preferences.
#include "backend/cpu/gemm/processor_tuning.h"

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace imp::cpu {

namespace {

// The kernels for up to kFewRows rows, and for more. So few multiply as fast as memory is read, and one panel at a time
// reads it fastest.
constexpr int kFewRows = 4;
struct Choice {
  DType weight;
  std::string_view few_rows;
  std::string_view more_rows;
};

constexpr Choice kWideQ8_0 = {DType::Q8_0, "q8_0_avx512vnni", "q8_0_avx512vnni_6x2"};
constexpr Choice kWideQ4_0 = {DType::Q4_0, "q4_0_avx512vnni", "q4_0_avx512vnni_6x2"};
constexpr Choice kFloatBF16 = {DType::BF16, "bf16_avx512bf16", "bf16_avx512"};

struct KnownProcessor {
  std::string_view name;
  Processor first;  // the first and the last model of the family
  int last_model;
  std::span<const Choice> choices;
};

// Zen 4 multiplies 512 bits in one cycle, so multiplications limit it, and only types with little to convert gain from
// loading activations half as often. Zen 5 multiplies twice as fast: loads limit it.
constexpr Choice kZen4[] = {kWideQ4_0};
constexpr Choice kZen5[] = {kWideQ8_0, kWideQ4_0};
// Cascade Lake starts two multiplications, conversions or scalings of 512 bits in a cycle, and they limit it. Q4_0 is
// fastest in wide tiles there too: 4 to 20 % in products of 12 to 512 rows.
constexpr Choice kCascadeLake[] = {kWideQ4_0};
// Their products of bfloat16 pairs start every second cycle, and two multiplications of floats start in each: those
// take half the time, once pairs are taken apart. Measured on Emerald Rapids, which has the cores of Sapphire Rapids.
constexpr Choice kSapphireRapids[] = {kFloatBF16};
constexpr KnownProcessor kProcessors[] = {
    {"AMD Zen 4 (Genoa)", {ProcessorMaker::amd, 0x19, 0x10}, 0x1f, kZen4},
    {"AMD Zen 4 (Raphael, Phoenix)", {ProcessorMaker::amd, 0x19, 0x60}, 0x7f, kZen4},
    {"AMD Zen 4 (Bergamo)", {ProcessorMaker::amd, 0x19, 0xa0}, 0xaf, kZen4},
    {"AMD Zen 5", {ProcessorMaker::amd, 0x1a, 0x00}, 0xff, kZen5},
    // Skylake has the same model and no VNNI.
    {"Intel Cascade Lake", {ProcessorMaker::intel, 0x06, 0x55}, 0x55, kCascadeLake},
    {"Intel Sapphire Rapids", {ProcessorMaker::intel, 0x06, 0x8f}, 0x8f, kSapphireRapids},
    {"Intel Emerald Rapids", {ProcessorMaker::intel, 0x06, 0xcf}, 0xcf, kSapphireRapids},
};

const KnownProcessor* find(const Processor& here) {
  const auto* const found = std::ranges::find_if(kProcessors, [&](const KnownProcessor& known) {
    return known.first.maker == here.maker && known.first.family == here.family && known.first.model <= here.model &&
           here.model <= known.last_model;
  });
  return found == std::end(kProcessors) ? nullptr : found;
}

}  // namespace

std::vector<GemmPreference> with_processor_tuning(std::vector<GemmPreference> measured, const DeviceCaps& caps) {
  const KnownProcessor* const known = find(caps.processor);
  if (known == nullptr || !caps.cpu.includes(needs::avx512vnni)) return measured;
  for (const Choice& type : known->choices) {
    if (std::ranges::find(measured, type.weight, &GemmPreference::weight) != measured.end()) continue;
    const std::string origin(known->name);
    measured.push_back({type.weight, kFewRows, std::string(type.few_rows), origin});
    measured.push_back({type.weight, kAnyRows, std::string(type.more_rows), origin});
  }
  return measured;
}

CpuFeatures fastest_features(const DeviceCaps& caps) noexcept {
  const KnownProcessor* const known = find(caps.processor);
  if (known == nullptr || std::ranges::find(known->choices, DType::BF16, &Choice::weight) == known->choices.end()) {
    return caps.cpu;
  }
  CpuFeatures kept;
  for (int i = 0; i < kNumCpuFeatures; ++i) {
    const auto feature = static_cast<CpuFeature>(i);
    if (feature != CpuFeature::avx512_bf16 && caps.cpu.has(feature)) kept.add(feature);
  }
  return kept;
}

// For one or two rows, software prefetches cost Zen 4 and Zen 5 a tenth to a third of the bandwidth. On Cascade Lake,
// Q8_0 takes the same time with and without them, and K-quants take 1.5 to 2.3 times as long without them.
int prefetching_rows(const Processor& processor) noexcept {
  return processor.maker == ProcessorMaker::intel ? 1 : 3;
}

}  // namespace imp::cpu
