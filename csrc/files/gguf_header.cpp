// Reads the counts, the key-values and the tensor table in order, and checks each as it is read.
#include "files/gguf_header.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"
#include "base/printable.h"
#include "files/byte_reader.h"
#include "files/gguf_format.h"
#include "files/gguf_values.h"

namespace imp::gguf {
namespace {

[[noreturn]] void fail(Reason reason, const File& file, const std::string& what, const std::string& message) {
  throw ModelError(reason, file.name() + ": " + what + ": " + message);
}

void check_magic_and_version(ByteReader& reader, const File& file) {
  const auto magic = reader.number<std::array<char, 4>>("magic");
  if (std::string_view(magic.data(), magic.size()) != "GGUF") {
    fail(Reason::MODEL_FORMAT, file, "magic", '"' + printable({magic.data(), magic.size()}) + "\", expected \"GGUF\"");
  }
  const auto version = reader.number<std::uint32_t>("version");
  if (version == 2 || version == 3) return;
  const std::uint32_t swapped = __builtin_bswap32(version);
  const std::string found =
      swapped == 2 || swapped == 3 ? std::to_string(swapped) + ", big-endian" : std::to_string(version);
  fail(Reason::MODEL_VERSION, file, "version", found + "; imp reads 2 and 3, little-endian");
}

std::uint64_t read_count(ByteReader& reader, const File& file, const std::string& what, std::uint64_t limit) {
  const auto count = reader.number<std::uint64_t>(what);
  if (count > limit) fail(Reason::MODEL_LIMIT, file, what, std::to_string(count) + ", limit " + std::to_string(limit));
  return count;
}

// Checks the dimensions, and derives the size from them.
void check_shape(const File& file, const std::string& what, TensorInfo& tensor) {
  std::int64_t n_elements = 1;
  for (int i = 0; i < tensor.n_dims; ++i) {
    const std::int64_t dim = tensor.dims[static_cast<std::size_t>(i)];
    if (dim < 1) fail(Reason::MODEL_SHAPE, file, what, "shape " + shape_text(tensor) + ", expected dimensions from 1");
    if (__builtin_mul_overflow(n_elements, dim, &n_elements) || n_elements > kMaxTensorElements) {
      fail(Reason::MODEL_SHAPE, file, what,
           "shape " + shape_text(tensor) + ", limit " + std::to_string(kMaxTensorElements) + " elements");
    }
  }
  const DTypeTraits& type = traits(tensor.dtype);
  if (!row_bytes(tensor.dtype, tensor.dims[0])) {
    fail(Reason::MODEL_SHAPE, file, what,
         "rows of " + std::to_string(tensor.dims[0]) + " elements, expected a multiple of " +
             std::to_string(type.block_elements) + " (" + std::string(type.name) + ")");
  }
  tensor.n_bytes = static_cast<std::uint64_t>(row_bytes(tensor.dtype, n_elements).value());
}

DType read_dtype(ByteReader& reader, const File& file, const std::string& what) {
  const auto id = reader.number<std::uint32_t>(what);
  const TensorType* type = tensor_type(id);
  if (!type) {
    fail(Reason::MODEL_TYPE, file, what, "type " + std::to_string(id) + ", known are " + dtype_names());
  }
  if (!type->dtype) {
    fail(Reason::MODEL_UNSUPPORTED, file, what, "type " + std::string(type->name) + ", supported are " + dtype_names());
  }
  return *type->dtype;
}

// One row of the table; file_offset is still relative to the start of the data.
TensorInfo read_tensor(ByteReader& reader, const File& file, std::uint64_t number) {
  std::string what = "tensor number " + std::to_string(number);
  const std::uint64_t n_name_bytes = read_count(reader, file, what + ": name length", kMaxTensorNameBytes);
  if (n_name_bytes == 0) fail(Reason::MODEL_STRING, file, what, "name is empty, expected a name");
  TensorInfo tensor;
  tensor.name.resize(n_name_bytes);
  reader.bytes(std::as_writable_bytes(std::span(tensor.name)), what);
  check_name(file.name(), what, tensor.name);

  what = "tensor " + tensor.name;
  const auto n_dims = reader.number<std::uint32_t>(what);
  if (n_dims < 1 || n_dims > kMaxDims) {
    fail(Reason::MODEL_SHAPE, file, what,
         std::to_string(n_dims) + " dimensions, expected 1 to " + std::to_string(kMaxDims));
  }
  tensor.n_dims = static_cast<int>(n_dims);
  for (std::size_t i = 0; i < n_dims; ++i) {
    const auto dim = reader.number<std::uint64_t>(what);
    if (dim > static_cast<std::uint64_t>(kMaxTensorElements)) {
      fail(Reason::MODEL_SHAPE, file, what,
           "dimension " + std::to_string(dim) + ", limit " + std::to_string(kMaxTensorElements) + " elements");
    }
    tensor.dims[i] = static_cast<std::int64_t>(dim);
  }
  tensor.dtype = read_dtype(reader, file, what);
  check_shape(file, what, tensor);
  tensor.file_offset = reader.number<std::uint64_t>(what);
  return tensor;
}

// Offsets are relative to the start of the data: aligned, in file order, each at the padded end of the tensor before.
void check_offset(const File& file, const TensorInfo& tensor, std::uint64_t expected, std::uint32_t alignment) {
  if (tensor.file_offset == expected) return;
  const std::string found = "offset " + std::to_string(tensor.file_offset);
  const std::string what = "tensor " + tensor.name;
  if (tensor.file_offset % alignment != 0) {
    fail(Reason::MODEL_OFFSET, file, what, found + ", expected a multiple of " + std::to_string(alignment));
  }
  fail(Reason::MODEL_OFFSET, file, what,
       found + (tensor.file_offset < expected ? " overlaps the tensor before it" : " leaves a gap") + ", expected " +
           std::to_string(expected));
}

// The offset of the next tensor or the end, after n_bytes from `offset` on.
bool padded_end(std::uint64_t offset, std::uint64_t n_bytes, std::uint32_t alignment, std::uint64_t& end) {
  if (__builtin_add_overflow(offset, n_bytes, &end)) return false;
  if (__builtin_add_overflow(end, alignment - 1, &end)) return false;
  end -= end % alignment;
  return true;
}

std::vector<TensorInfo> read_tensors(ByteReader& reader, const File& file, std::uint64_t n_tensors,
                                     std::uint32_t alignment) {
  std::vector<TensorInfo> tensors;  // not reserved: the file may claim more tensors than it has
  std::uint64_t expected_offset = 0;
  for (std::uint64_t i = 0; i < n_tensors; ++i) {
    TensorInfo tensor = read_tensor(reader, file, i);
    check_offset(file, tensor, expected_offset, alignment);
    if (!padded_end(tensor.file_offset, tensor.n_bytes, alignment, expected_offset)) {
      fail(Reason::MODEL_OFFSET, file, "tensor " + tensor.name, "ends beyond byte 2^64");
    }
    tensors.push_back(std::move(tensor));
  }
  return tensors;
}

// Makes the offsets absolute and checks that the file has the data. Returns the padded end of the last tensor.
std::uint64_t place_tensors(const File& file, std::vector<TensorInfo>& tensors, std::uint64_t data_begin,
                            std::uint32_t alignment) {
  std::uint64_t end = data_begin;
  for (TensorInfo& tensor : tensors) {
    std::uint64_t tensor_end = 0;
    if (__builtin_add_overflow(tensor.file_offset, data_begin, &tensor.file_offset) ||
        __builtin_add_overflow(tensor.file_offset, tensor.n_bytes, &tensor_end)) {
      fail(Reason::MODEL_OFFSET, file, "tensor " + tensor.name, "ends beyond byte 2^64");
    }
    if (tensor_end > file.size_bytes()) {
      fail(Reason::MODEL_OFFSET, file, "tensor " + tensor.name,
           "ends at byte " + std::to_string(tensor_end) + ", file has " + std::to_string(file.size_bytes()));
    }
    padded_end(tensor.file_offset, tensor.n_bytes, alignment, end);  // no overflow: the unpadded end is in the file
  }
  return std::min(end, file.size_bytes());
}

}  // namespace

Header read_header(const File& file) {
  if (file.size_bytes() < 8) {
    fail(Reason::MODEL_TRUNCATED, file, "file",
         "has " + std::to_string(file.size_bytes()) + " bytes, expected a model");
  }
  ByteReader reader(file, kMaxMetadataBytes);
  check_magic_and_version(reader, file);
  const std::uint64_t n_tensors = read_count(reader, file, "tensor count", kMaxTensors);
  const std::uint64_t n_keys = read_count(reader, file, "key count", kMaxKeys);
  reader.require(n_tensors * kMinTensorBytes + n_keys * kMinKeyBytes, "tensor and key counts");

  Header header{Metadata(file.name()), {}, 0};
  read_key_values(reader, n_keys, header.metadata);
  const auto alignment = header.metadata.find_integer<std::uint32_t>(kAlignmentKey).value_or(kDefaultAlignment);
  reader.require(n_tensors * kMinTensorBytes, "tensor table");
  header.tensors = read_tensors(reader, file, n_tensors, alignment);
  std::uint64_t data_begin = 0;
  IMP_CHECK(padded_end(reader.position(), 0, alignment, data_begin));
  header.data_end = place_tensors(file, header.tensors, data_begin, alignment);
  file.check_unchanged();
  return header;
}

}  // namespace imp::gguf
