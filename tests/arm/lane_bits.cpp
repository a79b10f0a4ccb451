// Compares the vector operations of each instruction set with plain scalar code.
#include <memory>

#include "base/cpu_features.h"
#include "bits.h"
#include "lane_ops.h"

namespace proof {

namespace {

struct Named {
  std::string name;
  LaneOps run;
};

std::vector<Named> here() {
  std::vector<Named> found{{"generic", lane_ops_generic}};
#if IMP_X86
  const imp::CpuFeatures features = imp::detect_cpu_features();
  if (features.includes(imp::needs::avx2)) found.push_back({"avx2", lane_ops_avx2});
  if (features.includes(imp::needs::avx512)) found.push_back({"avx512", lane_ops_avx512});
#endif
  return found;
}

LaneInputs random_inputs(Random& random) {
  LaneInputs in;
  for (int l = 0; l < 16; ++l) {
    in.a[l] = random.extreme();
    in.b[l] = random.next() % 8 == 0 ? in.a[l] : random.extreme();
    in.c[l] = random.extreme();
    in.i[l] = random.integer();
    in.j[l] = random.next() % 4 == 0 ? in.i[l] : random.integer() >> (random.byte() & 31);
    in.halves[l] = static_cast<std::uint16_t>(random.integer());
    in.bytes[l] = random.byte();
  }
  in.n = static_cast<int>(random.next() % 16);
  return in;
}

}  // namespace

void check_lanes() {
  constexpr int kCases = 4000;
  const std::vector<Named> instruction_sets = here();
  std::vector<std::uint32_t> results[kMaxLaneResults];
  const auto expected = std::make_unique<LaneOutputs>(), found = std::make_unique<LaneOutputs>();
  Random random(1);
  for (int i = 0; i < kCases; ++i) {
    const LaneInputs in = random_inputs(random);
    lane_ops_scalar(in, *expected);
    for (const Named& isa : instruction_sets) {
      isa.run(in, *found);
      for (int r = 0; r < expected->n_results; ++r) {
        require_equal(isa.name + ", " + expected->names[r] + ", case " + std::to_string(i), found->words[r],
                      expected->words[r]);
      }
    }
    for (int r = 0; r < expected->n_results; ++r) {
      results[r].insert(results[r].end(), expected->words[r], expected->words[r] + 16);
    }
  }
  for (int r = 0; r < expected->n_results; ++r) print_digest(std::string("lanes: ") + expected->names[r], results[r]);
}

}  // namespace proof
