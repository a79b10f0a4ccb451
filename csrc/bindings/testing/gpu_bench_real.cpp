// The benches of a GPU's kernels on the real device, where this imp has it.
#if IMP_CUDA
#include "bindings/testing/gpu_bench.inl"
#endif
