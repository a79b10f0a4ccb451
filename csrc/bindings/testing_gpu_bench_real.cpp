// The benches of a GPU's kernels on the real device, where this imp has it.
#if IMP_CUDA
#include "bindings/testing_gpu_bench.inl"
#endif
