// Five ways to read rows: as they stand, with gaps between them, as columns, as sums, or with their values in turn.
#include "model/weights/weight_rows.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/error.h"

namespace imp {
namespace {

// The rows of one matrix, of `size` bytes each.
struct FileRows {
  const ModelFile* file;
  const TensorInfo* tensor;
  std::uint64_t size;
  std::int64_t first;  // in the tensor
  RowGroups groups;
  RowOrder order;
  int head_dim;

  void read(std::int64_t first_row, std::int64_t n_rows, std::byte* out) const {
    if (order == RowOrder::file && groups.size == 0) {
      file->read(*tensor, bytes(first + first_row), {out, bytes(n_rows)});
    } else {
      read_scattered(first_row, n_rows, out);
    }
  }

 private:
  std::uint64_t bytes(std::int64_t n_rows) const { return static_cast<std::uint64_t>(n_rows) * size; }
  std::int64_t row_in_tensor(std::int64_t row) const { return first + groups.file_row(file_row(order, row, head_dim)); }

  // Reads the rows between them too: one long read takes less time than many short ones.
  void read_scattered(std::int64_t first_row, std::int64_t n_rows, std::byte* out) const {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(n_rows));
    for (std::int64_t i = 0; i < n_rows; ++i) rows[static_cast<std::size_t>(i)] = row_in_tensor(first_row + i);
    const auto [least, greatest] = std::ranges::minmax(rows);
    std::vector<std::byte> run(bytes(greatest - least + 1));
    file->read(*tensor, bytes(least), run);
    for (const std::int64_t row : rows) {
      std::memcpy(out, run.data() + bytes(row - least), size);
      out += size;
    }
  }
};

// A matrix whose rows are columns of the file. Its rows are asked for in parts, and by several threads.
class FileColumns {
 public:
  FileColumns(const ModelFile& file, const PlacedMatrix& matrix)
      : file_(file), weight_(*matrix.weight), index_(matrix.index), element_bytes_(bytes_of_element(weight_)) {}

  void read(std::int64_t first_row, std::int64_t n_rows, std::byte* out) {
    const std::uint64_t row_bytes = static_cast<std::uint64_t>(weight_.problem.k) * element_bytes_;
    const std::shared_ptr<const std::vector<std::byte>> rows = take(n_rows);
    std::memcpy(out, rows->data() + static_cast<std::uint64_t>(first_row) * row_bytes,
                static_cast<std::uint64_t>(n_rows) * row_bytes);
  }

 private:
  static std::uint64_t bytes_of_element(const PlannedWeight& weight) {
    return static_cast<std::uint64_t>(traits(weight.problem.weight).block_bytes);
  }

  // The matrix; it is dropped once all its rows have been taken.
  std::shared_ptr<const std::vector<std::byte>> take(std::int64_t n_rows) {
    const std::scoped_lock lock(mutex_);
    if (!rows_) rows_ = read_all();
    auto rows = rows_;
    n_taken_ += n_rows;
    if (n_taken_ >= weight_.problem.n) {
      rows_ = nullptr;
      n_taken_ = 0;
    }
    return rows;
  }

  std::shared_ptr<const std::vector<std::byte>> read_all() const {
    const std::int64_t n = weight_.problem.n, k = weight_.problem.k, width = weight_.tensor_rows;
    auto rows = std::make_shared<std::vector<std::byte>>(static_cast<std::uint64_t>(n * k) * element_bytes_);
    const std::uint64_t line_bytes = static_cast<std::uint64_t>(width) * element_bytes_;
    constexpr std::int64_t kLines = 64;  // of the file, read at a time
    std::vector<std::byte> lines(kLines * line_bytes);
    for (std::int64_t line = 0; line < k; line += kLines) {
      const std::int64_t n_lines = std::min(kLines, k - line);
      const auto at = static_cast<std::uint64_t>(index_ * k + line) * line_bytes;
      file_.read(*weight_.tensor, at, std::span(lines).first(static_cast<std::uint64_t>(n_lines) * line_bytes));
      for (std::int64_t row = 0; row < n; ++row) {
        const auto column =
            static_cast<std::uint64_t>(weight_.first_row + weight_.groups.file_row(row)) * element_bytes_;
        std::byte* to = rows->data() + static_cast<std::uint64_t>(row * k + line) * element_bytes_;
        for (std::int64_t i = 0; i < n_lines; ++i, to += element_bytes_) {
          std::memcpy(to, lines.data() + static_cast<std::uint64_t>(i) * line_bytes + column, element_bytes_);
        }
      }
    }
    return rows;
  }

  const ModelFile& file_;
  const PlannedWeight& weight_;
  std::int64_t index_;
  std::uint64_t element_bytes_;
  std::mutex mutex_;
  std::shared_ptr<const std::vector<std::byte>> rows_;
  std::int64_t n_taken_ = 0;
};

// A convolution, each of whose rows is the sum of its frames.
class FrameSums {
 public:
  FrameSums(const ModelFile& file, const PlannedWeight& weight) : file_(file), weight_(weight) {}

  void read(std::int64_t first_row, std::int64_t n_rows, std::byte* out) const {
    std::vector<float> sums(static_cast<std::size_t>(n_rows * weight_.problem.k));
    add(*weight_.tensor, first_row, sums);
    if (weight_.second_frame != nullptr) add(*weight_.second_frame, first_row, sums);
    std::memcpy(out, sums.data(), sums.size() * sizeof(float));
  }

 private:
  void add(const TensorInfo& tensor, std::int64_t first_row, std::span<float> sums) const {
    const auto n_frames = static_cast<std::size_t>(weight_.frames_in_row);
    const auto size = static_cast<std::size_t>(weight_.frame_size);
    const std::vector<float> values = values_of(tensor, first_row, sums.size() * n_frames);
    for (std::size_t frame = 0; frame < values.size() / size; ++frame) {
      float* const to = sums.data() + frame / n_frames * size;
      for (std::size_t i = 0; i < size; ++i) to[i] += values[frame * size + i];
    }
  }

  std::vector<float> values_of(const TensorInfo& tensor, std::int64_t first_row, std::size_t n) const {
    const DTypeTraits& type = traits(tensor.dtype);
    const std::int64_t row_values = weight_.problem.k * weight_.frames_in_row;
    const auto row = static_cast<std::uint64_t>(*row_bytes(tensor.dtype, row_values));
    std::vector<std::byte> bytes(n / static_cast<std::size_t>(row_values) * row);
    file_.read(tensor, static_cast<std::uint64_t>(first_row) * row, bytes);
    std::vector<float> values(n);
    type.dequantize(bytes.data(), values.data(), static_cast<std::int64_t>(n) / type.block_elements);
    return values;
  }

  const ModelFile& file_;
  const PlannedWeight& weight_;
};

// Puts the values of rows that are in turn one part after the other.
void part_values(const PlannedWeight& weight, std::int64_t n_rows, std::byte* rows) {
  const auto size = static_cast<std::size_t>(traits(weight.problem.weight).block_bytes);
  const auto n_parts = static_cast<std::size_t>(weight.in_turn);
  const std::size_t n_values = static_cast<std::size_t>(weight.problem.k) / n_parts;
  std::vector<std::byte> row(n_values * n_parts * size);
  for (std::int64_t i = 0; i < n_rows; ++i, rows += row.size()) {
    std::memcpy(row.data(), rows, row.size());
    for (std::size_t at = 0; at < n_values * n_parts; ++at) {
      std::memcpy(rows + (at % n_parts * n_values + at / n_parts) * size, row.data() + at * size, size);
    }
  }
}

}  // namespace

std::int64_t file_row(RowOrder order, std::int64_t row, int head_dim) {
  if (order == RowOrder::file) return row;
  const std::int64_t in_head = row % head_dim;
  if (order == RowOrder::quarters_swapped) {
    const std::int64_t quarter = head_dim / 4;
    if (in_head < quarter || in_head >= 3 * quarter) return row;
    return in_head < 2 * quarter ? row + quarter : row - quarter;
  }
  return row - in_head + in_head / 2 + (in_head % 2) * (head_dim / 2);
}

WeightSource source_of(const ModelFile& file, const PlacedMatrix& matrix, int head_dim) {
  const PlannedWeight& weight = *matrix.weight;
  WeightSource source{.name = weight.tensor->name, .problem = weight.problem, .read = {}};
  if (weight.frame_size > 0) {
    source.read = [sums = FrameSums(file, weight)](std::int64_t first_row, std::int64_t n_rows, std::byte* out) {
      sums.read(first_row, n_rows, out);
    };
    return source;
  }
  if (weight.is_transposed) {
    IMP_CHECK(matrix.order == RowOrder::file);
    source.read = [columns = std::make_shared<FileColumns>(file, matrix)](std::int64_t first_row, std::int64_t n_rows,
                                                                          std::byte* out) {
      columns->read(first_row, n_rows, out);
    };
    return source;
  }
  const FileRows rows = {.file = &file,
                         .tensor = weight.tensor,
                         .size = static_cast<std::uint64_t>(*row_bytes(weight.problem.weight, weight.problem.k)),
                         .first = matrix.index * weight.tensor_rows + weight.first_row,
                         .groups = weight.groups,
                         .order = matrix.order,
                         .head_dim = head_dim};
  source.read = [rows, &weight](std::int64_t first_row, std::int64_t n_rows, std::byte* out) {
    rows.read(first_row, n_rows, out);
    if (weight.in_turn > 1) part_values(weight, n_rows, out);
  };
  return source;
}

}  // namespace imp
