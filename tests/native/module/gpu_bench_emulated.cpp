// The benches of a GPU's kernels on the emulated device.
#define cuda cuda_emulated
#include "native/module/gpu_bench.inl"
