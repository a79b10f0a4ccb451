// Parses the header's JSON, then checks that the tensors cover the data exactly.
#include "files/safetensors_header.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/printable.h"
#include "files/byte_reader.h"
#include "files/json_reader.h"
#include "files/mxfp4_file.h"

namespace imp::safetensors {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = std::uint64_t{32} << 20;
constexpr std::size_t kMaxTensors = 65'536;
constexpr std::size_t kMaxMetadataKeys = 65'536;
constexpr std::size_t kMaxNameBytes = 512;
constexpr std::size_t kMaxDepth = 8;
constexpr std::uint64_t kMaxTensorElements = std::uint64_t{1} << 40;

struct ElementType {
  std::string_view name;
  std::optional<DType> dtype;  // empty: imp does not read it
};
constexpr std::array kElementTypes{
    ElementType{"F32", DType::F32},         ElementType{"F16", DType::F16},    ElementType{"BF16", DType::BF16},
    ElementType{"F8_E4M3", DType::F8_E4M3}, ElementType{"F64", std::nullopt},  ElementType{"I64", std::nullopt},
    ElementType{"I32", std::nullopt},       ElementType{"I16", std::nullopt},  ElementType{"I8", std::nullopt},
    ElementType{"U64", std::nullopt},       ElementType{"U32", std::nullopt},  ElementType{"U16", std::nullopt},
    ElementType{"U8", std::nullopt},        ElementType{"BOOL", std::nullopt}, ElementType{"F8_E5M2", std::nullopt},
    ElementType{"F8_E8M0", std::nullopt},   ElementType{"F4", std::nullopt},   ElementType{"C64", std::nullopt},
};
constexpr std::string_view kSupported = "F32, F16, BF16, F8_E4M3, and U8 for MXFP4";

// The maps between the tokens of a model and those of its draft head, and its tokens by cluster: integers and flags.
// And the numbers of positions that older encoders have as a tensor, which nothing reads.
struct TokenMap {
  std::string_view tensor;
  std::string_view type;
  int element_bytes;
};
constexpr std::array kTokenMaps{TokenMap{"d2t", "I64", 8},
                                TokenMap{"t2d", "BOOL", 1},
                                TokenMap{"masked_embedding.token_ordering", "I64", 8},
                                TokenMap{"embeddings.position_ids", "I64", 8},
                                TokenMap{"bert.embeddings.position_ids", "I64", 8},
                                TokenMap{"roberta.embeddings.position_ids", "I64", 8}};

// Elements of F8_E4M3, and the bytes of both parts of MXFP4, count one byte each: their scales are another tensor.
std::optional<std::int64_t> data_bytes(DType dtype, std::int64_t n_elements) {
  return dtype == DType::F8_E4M3 || dtype == DType::MXFP4 ? n_elements : row_bytes(dtype, n_elements);
}

[[noreturn]] void fail(Reason reason, const File& file, const std::string& what, const std::string& message) {
  throw ModelError(reason, file.name() + ": " + what + ": " + message);
}

std::string read_json(const File& file) {
  ByteReader reader(file, kMaxHeaderBytes + sizeof(std::uint64_t));
  const auto n_bytes = reader.number<std::uint64_t>("header length");
  if (n_bytes > kMaxHeaderBytes) {
    fail(Reason::MODEL_LIMIT, file, "header length",
         std::to_string(n_bytes) + ", limit " + std::to_string(kMaxHeaderBytes));
  }
  reader.require(n_bytes, "header");
  std::string json(n_bytes, '\0');
  reader.bytes(std::as_writable_bytes(std::span(json)), "header");
  if (!json.starts_with('{')) fail(Reason::MODEL_HEADER, file, "header", "does not begin with {, expected JSON");
  return json;
}

class HeaderParser {
 public:
  HeaderParser(const File& file, std::string_view json)
      : file_(file), reader_(json, file.name() + ": header", {Reason::MODEL_HEADER, Reason::MODEL_STRING, kMaxDepth}) {}

  Header parse() {
    reader_.check_depth();
    reader_.expect(JsonEvent::BEGIN_OBJECT, "an object");
    while (reader_.next() == JsonEvent::KEY) {
      if (reader_.value() == "__metadata__") {
        parse_metadata();
      } else {
        parse_tensor(reader_.value());
      }
    }
    reader_.expect(JsonEvent::END, "the end");
    return std::move(header_);
  }

 private:
  void parse_metadata() {
    if (!header_.metadata.empty()) reader_.fail(Reason::MODEL_DUPLICATE, "__metadata__ occurs twice");
    reader_.expect(JsonEvent::BEGIN_OBJECT, "an object");
    while (reader_.next() == JsonEvent::KEY) {
      if (header_.metadata.size() == kMaxMetadataKeys) {
        reader_.fail(Reason::MODEL_LIMIT, "more than " + std::to_string(kMaxMetadataKeys) + " keys in __metadata__");
      }
      std::string key = reader_.value();
      reader_.expect(JsonEvent::STRING, "a string");
      header_.metadata.emplace_back(std::move(key), reader_.value());
    }
  }

  void parse_tensor(const std::string& name) {
    if (header_.tensors.size() == kMaxTensors) {
      reader_.fail(Reason::MODEL_LIMIT, "more than " + std::to_string(kMaxTensors) + " tensors");
    }
    check_name(name);
    tensor_ = {};
    tensor_.name = name;
    has_dtype_ = has_shape_ = has_offsets_ = false;
    reader_.expect(JsonEvent::BEGIN_OBJECT, "an object");
    while (reader_.next() == JsonEvent::KEY) parse_member();
    if (!has_dtype_ || !has_shape_ || !has_offsets_) reader_.fail("expected dtype, shape and data_offsets");
    check_size();
    header_.tensors.push_back(std::move(tensor_));
  }

  void parse_member() {
    const std::string member = reader_.value();
    bool& present = member == "dtype" ? has_dtype_ : member == "shape" ? has_shape_ : has_offsets_;
    if (member != "dtype" && member != "shape" && member != "data_offsets") {
      reader_.fail("expected dtype, shape or data_offsets");
    }
    if (present) reader_.fail(Reason::MODEL_DUPLICATE, member + " occurs twice");
    present = true;
    if (member == "dtype") parse_dtype();
    if (member == "shape") parse_shape();
    if (member == "data_offsets") parse_offsets();
  }

  void check_name(const std::string& name) {
    if (name.empty()) reader_.fail(Reason::MODEL_STRING, "tensor name is empty");
    if (name.size() > kMaxNameBytes) {
      reader_.fail(Reason::MODEL_LIMIT,
                   "tensor name of " + std::to_string(name.size()) + " bytes, limit " + std::to_string(kMaxNameBytes));
    }
    const bool control =
        std::ranges::any_of(name, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
    if (control) reader_.fail(Reason::MODEL_STRING, "tensor name with a control character");
  }

  void parse_dtype() {
    if (reader_.next() != JsonEvent::STRING) reader_.fail(Reason::MODEL_TYPE, "expected the name of a type");
    const auto row = std::ranges::find(kElementTypes, reader_.value(), &ElementType::name);
    if (row == kElementTypes.end()) {
      reader_.fail(Reason::MODEL_TYPE, "type " + printable(reader_.value()) + ", known are " + std::string(kSupported));
    }
    if (row->name == "U8" && is_part_of_mxfp4(tensor_.name)) {
      tensor_.dtype = DType::MXFP4;
      return;
    }
    for (const TokenMap& map : kTokenMaps) {
      if (tensor_.name != map.tensor || row->name != map.type) continue;
      tensor_.integer_bytes = map.element_bytes;
      return;
    }
    if (!row->dtype) {
      fail(Reason::MODEL_UNSUPPORTED, file_, "tensor " + printable(tensor_.name, kMaxShownName),
           "type " + std::string(row->name) + ", supported are " + std::string(kSupported));
    }
    tensor_.dtype = *row->dtype;
  }

  std::uint64_t parse_unsigned() {
    const std::optional<std::uint64_t> value =
        reader_.next() == JsonEvent::NUMBER ? json_unsigned(reader_.value()) : std::nullopt;
    if (!value) reader_.fail("expected an integer from 0 to 2^64 - 1");
    return *value;
  }

  // The file has the contiguous dimension last, TensorInfo has it first.
  void parse_shape() {
    reader_.expect(JsonEvent::BEGIN_ARRAY, "an array");
    for (;;) {
      const JsonEvent event = reader_.next();
      if (event == JsonEvent::END_ARRAY) break;
      const auto dim = event == JsonEvent::NUMBER ? json_unsigned(reader_.value()) : std::nullopt;
      if (!dim) reader_.fail("expected an integer from 0 to 2^64 - 1");
      if (tensor_.n_dims == kMaxTensorRank) {
        reader_.fail(Reason::MODEL_LIMIT, "more than " + std::to_string(kMaxTensorRank) + " dimensions");
      }
      if (*dim > kMaxTensorElements) {
        reader_.fail(Reason::MODEL_SHAPE, "dimension " + std::to_string(*dim) + ", limit 2^40 elements");
      }
      tensor_.dims[static_cast<std::size_t>(tensor_.n_dims++)] = static_cast<std::int64_t>(*dim);
    }
    std::reverse(tensor_.dims.begin(), tensor_.dims.begin() + tensor_.n_dims);
  }

  void parse_offsets() {
    reader_.expect(JsonEvent::BEGIN_ARRAY, "an array of two integers");
    tensor_.file_offset = parse_unsigned();
    const std::uint64_t end = parse_unsigned();
    reader_.expect(JsonEvent::END_ARRAY, "the end of an array of two integers");
    if (end < tensor_.file_offset) {
      reader_.fail(Reason::MODEL_OFFSET, "tensor ends at " + std::to_string(end) + ", before its begin at " +
                                             std::to_string(tensor_.file_offset));
    }
    tensor_.n_bytes = end - tensor_.file_offset;
  }

  void check_size() {
    std::uint64_t n_elements = 1;
    for (const std::int64_t dim : tensor_.dims) {
      // Dimensions are at most 2^40 and each product is checked, since 2^40 · 2^40 could wrap.
      if (__builtin_mul_overflow(n_elements, static_cast<std::uint64_t>(dim), &n_elements) ||
          n_elements > kMaxTensorElements) {
        refuse_shape("limit 2^40 elements");
      }
    }
    const auto n_bytes = tensor_.integer_bytes > 0
                             ? std::optional(static_cast<std::int64_t>(n_elements) * tensor_.integer_bytes)
                             : data_bytes(tensor_.dtype, static_cast<std::int64_t>(n_elements));
    if (!n_bytes || static_cast<std::uint64_t>(*n_bytes) != tensor_.n_bytes) {
      refuse_shape("data has " + std::to_string(tensor_.n_bytes) + " bytes, expected " +
                   std::to_string(n_bytes.value_or(0)));
    }
  }

  [[noreturn]] void refuse_shape(const std::string& message) {
    fail(Reason::MODEL_SHAPE, file_, "tensor " + printable(tensor_.name, kMaxShownName),
         "shape " + shape_text(tensor_) + ", " + message);
  }

  static constexpr std::size_t kMaxShownName = 128;

  const File& file_;
  JsonReader reader_;
  Header header_;
  TensorInfo tensor_;  // the current one
  bool has_dtype_ = false;
  bool has_shape_ = false;
  bool has_offsets_ = false;
};

// Sorts the tensors by offset and makes the offsets absolute. They must cover the data without gaps.
void place_tensors(const File& file, std::uint64_t data_begin, std::vector<TensorInfo>& tensors) {
  std::ranges::sort(tensors, {}, [](const TensorInfo& t) { return std::pair(t.file_offset, t.n_bytes); });
  const std::uint64_t data_bytes = file.size_bytes() - data_begin;
  std::uint64_t end = 0;
  for (TensorInfo& tensor : tensors) {
    const std::string what = "tensor " + printable(tensor.name, 128);
    if (tensor.file_offset != end) {
      fail(Reason::MODEL_OFFSET, file, what,
           "begins at " + std::to_string(tensor.file_offset) +
               (tensor.file_offset < end ? ", overlapping the tensor before it" : ", leaving a gap") + ", expected " +
               std::to_string(end));
    }
    if (tensor.n_bytes > data_bytes - end) {
      fail(Reason::MODEL_OFFSET, file, what,
           "ends at " + std::to_string(end) + " + " + std::to_string(tensor.n_bytes) + ", file has " +
               std::to_string(data_bytes) + " bytes of data");
    }
    end += tensor.n_bytes;
    tensor.file_offset += data_begin;
  }
  if (end != data_bytes) {
    fail(Reason::MODEL_OFFSET, file, "data",
         std::to_string(data_bytes - end) + " bytes after the last tensor, expected 0");
  }
}

void check_unique(const File& file, const Header& header) {
  std::vector<std::string_view> names;
  names.reserve(header.tensors.size());
  for (const TensorInfo& tensor : header.tensors) names.push_back(tensor.name);
  std::ranges::sort(names);
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end()) {
    fail(Reason::MODEL_DUPLICATE, file, "tensor " + printable(*twice, 128), "occurs twice, expected once");
  }
}

}  // namespace

Header read_header(const File& file) {
  if (file.size_bytes() < 8) {
    fail(Reason::MODEL_TRUNCATED, file, "file",
         "has " + std::to_string(file.size_bytes()) + " bytes, expected a model");
  }
  const std::string json = read_json(file);
  Header header = HeaderParser(file, json).parse();
  check_unique(file, header);
  place_tensors(file, sizeof(std::uint64_t) + json.size(), header.tensors);
  file.check_unchanged();
  return header;
}

}  // namespace imp::safetensors
