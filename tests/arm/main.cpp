// Runs every kernel, op and vector operation of this processor on fixed random numbers. Those of one kind must agree
// bit for bit. Prints their digests, which must be equal on a processor of another family.
//
// usage: processor_bits [ISA]
//
// The digests go to the standard output, the instruction sets found to the standard error. Fails if ISA is not the name
// of these sets.
#include <cstdio>

#include "base/cpu_features.h"
#include "base/float_mode.h"
#include "bits.h"

int main(int argc, char** argv) {
  const imp::CpuFeatures here = imp::detect_cpu_features();
  std::fprintf(stderr, "instruction sets: %s\n", imp::isa_names(here).c_str());
  if (argc > 1 && imp::isa_name(here) != argv[1]) {
    std::fprintf(stderr, "expected %s\n", argv[1]);
    return 1;
  }
  const imp::ComputeFloatMode mode;
  proof::check_lanes();
  proof::check_ops();
  proof::check_gemms();
}
