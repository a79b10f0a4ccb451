// `_testing`: the index arithmetic of the CUDA backend's kernels.
#include <pybind11/pybind11.h>

#include "backend/cuda/device/tile_swizzle.h"
#include "backend/cuda/gemm/block_order.h"
#include "backend/cuda/gemm/cublaslt/partition.h"
#include "native/module/gemm.h"

namespace py = pybind11;

namespace imp::bindings {

void register_testing_cuda_places(py::module_& module) {
  module.def(
      "cuda_block_order",
      [](int n_row_blocks, int n_passes) {
        py::list order;
        for (int block = 0; block < n_row_blocks * n_passes; ++block) {
          const cuda::BlockPosition place = cuda::block_position(block, n_row_blocks, n_passes);
          order.append(py::make_tuple(place.row_block, place.pass));
        }
        return order;
      },
      py::arg("n_row_blocks"), py::arg("n_passes"));
  module.def(
      "cublaslt_cut",
      [](std::int64_t n, std::int64_t k, int n_products, int m) {
        const cuda::CublasLtPartition cut = cuda::partition_of(n, k, n_products);
        return py::make_tuple(cut.strip_rows, cuda::last_strip(cut), cut.part_rows,
                              cuda::scratch_of(cut, n_products, m).end);
      },
      py::arg("n"), py::arg("k"), py::arg("n_products"), py::arg("m"),
      "Of the real device: rows of the weight's strips, of the last one, rows of x in a part at most, bytes of "
      "scratch.");
  module.def(
      "cublaslt_bucket",
      [](int m) {
        const int bucket = cuda::bucket_of(m);
        return py::make_tuple(cuda::least_rows(bucket), cuda::bucket_rows(bucket));
      },
      py::arg("m"), "The fewest and the most rows that its algorithm is for.");
  module.def("cuda_swizzled", &cuda::swizzled, py::arg("address"));
  module.def("cuda_tile_descriptor", &cuda::tile_descriptor, py::arg("shared_address"));
}

}  // namespace imp::bindings
