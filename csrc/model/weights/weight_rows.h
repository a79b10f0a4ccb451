// Reads the rows of a weight, in whatever order the file holds them.
#pragma once

#include <cstdint>

#include "backend/backend.h"
#include "files/model_file.h"
#include "model/weights/packed_cache.h"

namespace imp {

// The row of the file that becomes row `row` of the weight.
std::int64_t file_row(RowOrder order, std::int64_t row, int head_dim);

// The file and the plan must outlive it. A matrix that is stored transposed is held in memory from the first read until
// all its rows have been read.
WeightSource source_of(const ModelFile& file, const PlacedMatrix& matrix, int head_dim);

}  // namespace imp
