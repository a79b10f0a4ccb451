// The benches of a GPU's kernels on the real device, where this imp has it.
#if IMP_CUDA
#include "native/module/gpu_bench.inl"
#endif
