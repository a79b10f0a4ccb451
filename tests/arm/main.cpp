// Runs every kernel, op and vector operation of this processor on fixed random numbers. Those of one kind must agree
// bit for bit. Prints their digests, which must be equal on a processor of another family.
//
// usage: processor_bits        prints to the standard output; the instruction sets found go to the standard error
#include <cstdio>

#include "base/cpu_features.h"
#include "base/float_mode.h"
#include "bits.h"

int main() {
  std::fprintf(stderr, "instruction sets: %s\n", imp::isa_names(imp::detect_cpu_features()).c_str());
  const imp::ComputeFloatMode mode;
  proof::check_lanes();
  proof::check_ops();
  proof::check_gemms();
}
