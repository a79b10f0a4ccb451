// The lookup of tensors by name.
#include "files/model_file.h"

#include <algorithm>
#include <numeric>

#include "base/file.h"
#include "base/printable.h"

namespace imp {

std::string shape_text(const TensorInfo& tensor) {
  std::string text = "[";
  for (int i = 0; i < tensor.n_dims; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(tensor.dims[static_cast<std::size_t>(i)]);
  }
  return text + "]";
}

std::string ModelFile::name() const {
  return printable(file_name(path_), 255);
}

const TensorInfo* ModelFile::find(std::string_view name) const noexcept {
  const auto name_of = [this](std::uint32_t i) -> std::string_view { return tensors_[i].name; };
  const auto place = std::ranges::lower_bound(by_name_, name, {}, name_of);
  return place != by_name_.end() && tensors_[*place].name == name ? &tensors_[*place] : nullptr;
}

const std::string* ModelFile::index_tensors(std::vector<TensorInfo> tensors) {
  tensors_ = std::move(tensors);
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  const auto name_of = [this](std::uint32_t i) -> const std::string& { return tensors_[i].name; };
  std::ranges::sort(by_name_, {}, name_of);
  const auto twice = std::ranges::adjacent_find(by_name_, {}, name_of);
  return twice == by_name_.end() ? nullptr : &tensors_[*twice].name;
}

std::vector<FileStamp> ModelFile::stamps() const {
  std::vector<FileStamp> stamps;
  for (const std::shared_ptr<const File>& file : files()) stamps.push_back(file->stamp());
  return stamps;
}

}  // namespace imp
