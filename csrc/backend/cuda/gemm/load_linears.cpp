// Loads weights in batches: while one batch is copied to the device, the next is read and packed.
#include "backend/cuda/gemm/load_linears.h"

#include <algorithm>
#include <utility>

#include "backend/cuda/device/runtime.h"
#include "backend/cuda/gemm/cuda_linear.h"
#include "backend/cuda/gemm/layouts.h"
#include "backend/cuda/gemm/tiles.h"
#include "backend/loading.h"
#include "base/ceil_div.h"
#include "base/error.h"
#include "base/first_error.h"

namespace imp::cuda {
namespace {

// Bytes staged at a time, double-buffered: large enough to hide the latency of a copy.
constexpr std::int64_t kBatchBytes = std::int64_t{32} << 20;
// Bytes read and packed by one thread, then copied at once.
constexpr std::int64_t kPieceBytes = std::int64_t{1} << 20;

// A weight and its destination.
struct Target {
  const LinearRequest* request;
  std::shared_ptr<std::byte> bytes;

  const WeightSource& source() const noexcept { return request->source; }
  std::int64_t row_size() const noexcept { return *row_bytes(source().problem.weight, source().problem.k); }
  // Of 16 rows in the layout. In the file the last strip may have fewer.
  std::int64_t strip_bytes() const noexcept {
    GemmProblem strip = source().problem;
    strip.n = kTileRows;
    return static_cast<std::int64_t>(packed_bytes(strip, request->plan.layout));
  }
};

// Whole strips of a weight, for one task.
struct Slice {
  const Target* target;
  std::int64_t first_row, n_rows;
  std::int64_t staged_at = 0;  // in its batch

  std::int64_t begin() const noexcept { return first_row / kTileRows * target->strip_bytes(); }
  std::int64_t n_bytes() const noexcept {
    if (target->request->plan.layout == WeightLayout::file) return file_bytes();
    return ceil_div(n_rows, kTileRows) * target->strip_bytes();
  }
  std::int64_t file_bytes() const noexcept { return n_rows * target->row_size(); }
};

void cut(const Target& target, std::vector<Slice>& slices) {
  const std::int64_t n = target.source().problem.n;
  const std::int64_t rows = std::max(kPieceBytes / target.strip_bytes(), std::int64_t{1}) * kTileRows;
  for (std::int64_t first = 0; first < n; first += rows) slices.push_back({&target, first, std::min(rows, n - first)});
}

// Batches of slices that together fit `most` bytes.
class Batches {
 public:
  Batches(std::vector<Slice>& slices, std::int64_t most) : slices_(slices), most_(most) {}

  // Empty after the last.
  std::span<Slice> next() {
    const std::size_t begin = end_;
    std::int64_t n_bytes = 0;
    for (; end_ < slices_.size() && n_bytes + slices_[end_].n_bytes() <= most_; ++end_) {
      slices_[end_].staged_at = n_bytes;
      n_bytes += slices_[end_].n_bytes();
    }
    return std::span(slices_).subspan(begin, end_ - begin);
  }

 private:
  std::vector<Slice>& slices_;
  std::int64_t most_;
  std::size_t end_ = 0;
};

// Waits for copies in flight before their memory is freed.
struct Arrival {
  Stream& stream;
  ~Arrival() { synchronize(stream); }
};

class Loader {
 public:
  Loader(ThreadPool& threads, Stream& stream, const BytesRead& progress, std::span<const Slice> slices)
      : threads_(threads), stream_(stream), read_(progress) {
    std::int64_t largest = 0, largest_packed = 0;
    for (const Slice& slice : slices) {
      largest = std::max(largest, slice.n_bytes());
      if (is_packed(slice)) largest_packed = std::max(largest_packed, slice.file_bytes());
      total_ += slice.n_bytes();
    }
    batch_bytes_ = std::max(std::min(kBatchBytes, total_), largest);
    staging_ = allocate_staging(static_cast<std::size_t>(2 * batch_bytes_));
    buffers_.assign(static_cast<std::size_t>(threads.n_threads()),
                    std::vector<std::byte>(static_cast<std::size_t>(largest_packed)));
  }

  void load(std::vector<Slice>& slices) {
    const Arrival arrival{stream_};
    Batches batches(slices, batch_bytes_);
    bool is_second = false;
    for (std::span<Slice> batch = batches.next(); !batch.empty(); batch = batches.next()) {
      std::byte* const staged = staging_.get() + (is_second ? batch_bytes_ : 0);
      stage(batch, staged);
      synchronize(stream_);  // for the batch before: its half is staged next
      for (const Slice& slice : batch) {
        copy_to_device(stream_, slice.target->bytes.get() + slice.begin(), staged + slice.staged_at,
                       static_cast<std::size_t>(slice.n_bytes()));
      }
      is_second = !is_second;
    }
  }

 private:
  static bool is_packed(const Slice& slice) noexcept {
    return slice.target->request->plan.layout != WeightLayout::file;
  }

  void stage(std::span<const Slice> batch, std::byte* staged) {
    FirstError error;
    threads_.run(static_cast<int>(batch.size()), [&](int task, int thread) {
      error.guard([&] {
        const Slice& slice = batch[static_cast<std::size_t>(task)];
        put(slice, buffers_[static_cast<std::size_t>(thread)].data(), staged + slice.staged_at);
        read_.add(slice.file_bytes(), thread);
      });
    });
    error.rethrow();
    read_.report();
  }

  static void put(const Slice& slice, std::byte* buffer, std::byte* to) {
    const WeightSource& source = slice.target->source();
    if (!is_packed(slice)) return source.read(slice.first_row, slice.n_rows, to);
    source.read(slice.first_row, slice.n_rows, buffer);
    pack_rows(source.problem, slice.target->request->plan.layout, slice.first_row, slice.n_rows, buffer, to);
  }

  ThreadPool& threads_;
  Stream& stream_;
  ReadProgress read_;
  std::int64_t total_ = 0, batch_bytes_ = 0;
  std::shared_ptr<std::byte> staging_;           // two batches
  std::vector<std::vector<std::byte>> buffers_;  // per thread: rows in the file's format
};

}  // namespace

std::vector<std::unique_ptr<Linear>> load_cuda_linears(std::span<const LinearRequest> requests, DeviceArena& memory,
                                                       ThreadPool& threads, Stream& stream, const BytesRead& progress) {
  std::vector<Target> targets;
  for (const LinearRequest& request : requests) {
    const GemmProblem& problem = request.source.problem;
    require_shape(request.source);
    const WeightLayout layout = request.plan.layout;
    IMP_CHECK(layout == WeightLayout::file || (layout == WeightLayout::tile16 && has_tiles(problem.weight)));
    IMP_CHECK(!request.source.read_packed);  // keeps_packed() is false
    targets.push_back({&request, memory.allocate(packed_bytes(problem, layout))});
  }
  std::vector<Slice> slices;
  for (const Target& target : targets) cut(target, slices);
  if (!slices.empty()) Loader(threads, stream, progress, slices).load(slices);

  std::vector<std::unique_ptr<Linear>> loaded;
  for (Target& target : targets) {
    const LinearRequest& request = *target.request;
    loaded.push_back(std::make_unique<CudaLinear>(request.source.problem, request.plan, std::move(target.bytes)));
  }
  return loaded;
}

}  // namespace imp::cuda
