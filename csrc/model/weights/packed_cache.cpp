// The key and the file name of the cache.
#include "model/weights/packed_cache.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iomanip>
#include <sstream>
#include <system_error>

#include "base/checksum.h"
#include "base/error.h"
#include "files/float8_scheme.h"

namespace imp {
namespace {

static_assert(kPackedRangeBytes == kPackedPieceBytes, "a backend reads whole pieces, which have checksums");

// The coarsest clock of common file systems.
constexpr std::chrono::seconds kCoarsestClock{2};

std::string sources_text(std::span<const FileStamp> stamps) {
  std::ostringstream text;
  for (const FileStamp& stamp : stamps) {
    text << "file of " << stamp.size_bytes << " bytes, modified " << stamp.modified_s << " s " << stamp.modified_ns
         << " ns, changed " << stamp.changed_s << " s " << stamp.changed_ns << " ns, inode " << stamp.inode << '\n';
  }
  return text.str();
}

std::string matrices_text(std::span<const PlacedMatrix> matrices, int head_dim) {
  std::ostringstream text;
  text << "layouts, revision " << kLayoutRevision << '\n';
  for (const auto& [weight, order, index] : matrices) {
    const TensorInfo& tensor = *weight->tensor;
    const GemmProblem& problem = weight->problem;
    text << tensor.name << " [" << problem.n << ", " << problem.k << "] " << traits(problem.weight).name << " as "
         << name_of(weight->plan.layout);
    if (order == RowOrder::pairs_apart) text << ", pairs of rows in heads of " << head_dim;
    if (order == RowOrder::quarters_swapped) text << ", swapped quarters of heads of " << head_dim;
    if (weight->groups.size != 0)
      text << ", " << weight->groups.size << " of every " << weight->groups.stride << " rows";
    if (weight->n_matrices > 1) text << ", matrix " << index;
    if (weight->tensor_rows != problem.n) text << ", rows from " << weight->first_row;
    if (weight->is_transposed) text << ", transposed";
    if (weight->in_turn > 1) text << ", " << weight->in_turn << " values in turn";
    text << ", from file " << tensor.shard << " byte " << tensor.file_offset << '\n';
  }
  return text.str();
}

// The facts of config.json that affect the bytes of weights. config.json is not among the model's files, whose stamps
// the key has.
std::string scales_text(const ModelFile& file, std::span<const PlacedMatrix> matrices) {
  const auto has_scales = [](const PlacedMatrix& each) { return each.weight->problem.weight == DType::F8_E4M3; };
  if (!std::ranges::any_of(matrices, has_scales)) return {};
  const Float8Scheme scheme = float8_scheme(file.metadata()).value_or(Float8Scheme{});
  return "scales of " + std::to_string(scheme.block_rows) + " rows and " + std::to_string(scheme.block_columns) +
         " columns\n";
}

std::uint64_t checksum_of(const std::string& text) {
  return checksum(std::as_bytes(std::span(text)));
}

std::string why_not(std::span<const FileStamp> stamps) {
  if (stamps.empty()) return "the model has no file";
  const std::chrono::nanoseconds now = std::chrono::system_clock::now().time_since_epoch();
  const bool has_settled = std::ranges::all_of(stamps, [&](const FileStamp& stamp) {
    return std::chrono::seconds(stamp.modified_s) + std::chrono::nanoseconds(stamp.modified_ns) + kCoarsestClock < now;
  });
  return has_settled ? "" : "the model was modified a moment before it was read";
}

}  // namespace

PackedCache::PackedCache(const std::string& folder, const ModelFile& file, std::span<const PlacedMatrix> matrices,
                         int head_dim)
    : folder_(folder), why_not_(why_not(file.stamps())) {
  const std::string layouts = matrices_text(matrices, head_dim);
  key_ = "imp packed weights\n" + sources_text(file.stamps()) + scales_text(file, matrices) + layouts;
  for (const PlacedMatrix& matrix : matrices) {
    part_bytes_.push_back(packed_bytes(matrix.weight->problem, matrix.weight->plan.layout));
  }
  std::error_code error;  // on error the path stays as it is
  const std::filesystem::path absolute = std::filesystem::absolute(file.path(), error);
  const std::uint64_t name = checksum_of((error ? file.path() : absolute.string()) + "\n" + layouts);
  std::ostringstream path;
  path << folder << '/' << file_name(file.path()) << '-' << std::hex << std::setfill('0') << std::setw(16) << name;
  path_ = path.str() + ".packed";
}

std::unique_ptr<const PackedFile> PackedCache::open() const {
  return std::make_unique<const PackedFile>(path_, key_, part_bytes_);
}

bool PackedCache::write(std::span<const Linear* const> matrices, const std::function<bool()>& goes_on) const {
  if (!why_not_.empty()) throw ModelError(Reason::MODEL_IO, file_name(path_) + ": not written: " + why_not_);
  std::vector<std::span<const std::byte>> parts;
  for (const Linear* matrix : matrices) parts.push_back(matrix->packed());
  std::error_code error;  // writing the file reports the error
  std::filesystem::create_directories(folder_, error);
  return write_packed_file(path_, key_, parts, goes_on);
}

}  // namespace imp
