#include "model/layer/workspace.h"

#include "base/error.h"
#include "model/layer/row_views.h"

namespace imp {

Workspace::Workspace(int max_rows, Backend& backend) : max_rows_(max_rows), backend_(&backend) {
  IMP_CHECK(max_rows > 0);
}

void Workspace::add(Rows& buffer, std::int64_t width, int per_row) {
  const int n_rows = max_rows_ * per_row;
  n_bytes_ += bytes_of_rows(n_rows, width);
  if (backend_ == nullptr) return;
  buffer = backend_->make_rows(n_rows, static_cast<int>(width));
  buffers_.emplace_back(&buffer, per_row);
}

void Workspace::add(ExpertRows& buffer, const ExpertRouting& routing) {
  n_bytes_ += expert_rows_bytes(max_rows_, routing);
  if (backend_ == nullptr) return;
  buffer = backend_->make_expert_rows(max_rows_, routing);
  expert_rows_.push_back(&buffer);
}

void Workspace::use(std::size_t n) {
  IMP_CHECK(n <= static_cast<std::size_t>(max_rows_));
  const int n_rows = static_cast<int>(n);
  for (const auto& [buffer, per_row] : buffers_) buffer->n_rows = n_rows * per_row;
  for (ExpertRows* buffer : expert_rows_) buffer->n_rows = n_rows;
}

}  // namespace imp
