// `_testing`: where the CUDA backend's kernels put things and in which order: their index arithmetic.
#include <pybind11/pybind11.h>

#include "backend/cuda/gemm/block_order.h"
#include "backend/cuda/tile_places.h"
#include "bindings/testing_gemm.h"

namespace py = pybind11;

namespace imp::bindings {

void register_testing_cuda_places(py::module_& module) {
  module.def(
      "cuda_block_order",
      [](int n_row_blocks, int n_passes) {
        py::list order;
        for (int block = 0; block < n_row_blocks * n_passes; ++block) {
          const cuda::BlockPlace place = cuda::place_in_order(block, n_row_blocks, n_passes);
          order.append(py::make_tuple(place.row_block, place.pass));
        }
        return order;
      },
      py::arg("n_row_blocks"), py::arg("n_passes"));
  module.def("cuda_swizzled", &cuda::swizzled, py::arg("address"));
  module.def("cuda_tile_descriptor", &cuda::tile_descriptor, py::arg("shared_address"));
}

}  // namespace imp::bindings
