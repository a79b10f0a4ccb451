// The stages of a tower, and their cost.
#include "model/vision/vision_tower.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/ceil_div.h"
#include "base/error.h"
#include "model/config/rope.h"
#include "model/layer/backend_needs.h"
#include "model/layer/normalize.h"
#include "model/layer/row_views.h"
#include "model/model.h"
#include "model/vision/part_check.h"
#include "model/weights/op_scratch.h"

namespace imp {
namespace {

using Kind = VisionStage::Kind;

// Products of fewer rows take about as long.
constexpr int kLeastPiece = 16;

// A cache for the keys and values of one layer.
KvGeometry cache_geometry(const VisionConfig& config) {
  constexpr int kBlockTokens = 16;
  return kv_geometry(config.layers, kBlockTokens, ceil_div(config.max_part_patches(), kBlockTokens), 0);
}

WorkspaceNeeds needs_apart_from_weights(const VisionConfig& config, const VisionOptions& options) {
  WorkspaceNeeds needs =
      workspace_needs(config.layers, {.max_rows = options.max_piece, .max_logits_rows = 1, .takes_media = true});
  needs.ops.push_back(Op::write_rows);
  CellProjector::add_needs(config, needs);
  return needs;
}

WorkspaceNeeds all_needs(const VisionConfig& config, const VisionWeights& weights, const VisionOptions& options) {
  WorkspaceNeeds needs = needs_apart_from_weights(config, options);
  needs.weights.push_back(weights.patches.get());
  if (weights.positions != nullptr) needs.weights.push_back(weights.positions.get());
  for (const Matrix& table : weights.axis_positions) needs.weights.push_back(table.get());
  for (const LayerWeights& layer : weights.layers) add_matrices(layer, needs);
  for (const ProjectorWeights& projector : weights.projectors) {
    needs.weights.push_back(projector.first.get());
    if (projector.second != nullptr) needs.weights.push_back(projector.second.get());
  }
  return needs;
}

std::vector<Rope> ropes_of(const ModelConfig& layers) {
  std::vector<Rope> ropes;
  for (const RopeConfig& rope : layers.ropes) ropes.push_back(resolve_rope(rope, {}));
  return ropes;
}

std::vector<std::int32_t> numbers_up_to(int n) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::span<const std::int32_t> part_of(const std::vector<std::int32_t>& all, int first, int n) {
  return std::span(all).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(n));
}

// A projector follows the layer whose output it reads.
std::vector<VisionStage> stages_of(const VisionConfig& config) {
  std::vector<VisionStage> stages = {{.kind = Kind::embed}};
  for (int i = 0; i < config.layers.n_layers; ++i) {
    stages.push_back({.kind = Kind::keys, .index = i});
    stages.push_back({.kind = Kind::layer, .index = i});
    for (std::size_t slice = 0; slice < config.projectors.size(); ++slice) {
      if (config.projectors[slice].layer != i) continue;
      stages.push_back({.kind = Kind::cells, .index = static_cast<int>(slice)});
    }
  }
  return stages;
}

MediaFacts facts_of(const VisionConfig& config, const VisionOptions& options) {
  const int max_cells = config.max_part_cells();
  return {.width = config.width,
          .max_rows = max_cells,
          .max_atomic_cells = options.is_atomic ? max_cells : 0,
          .placeholder = 0,
          .row_token = 0};
}

// The pixels of a piece, and the positions that are interpolated for it.
std::uint64_t host_bytes(const VisionConfig& config, int max_piece) {
  const bool interpolates = config.axis_places == 0 && config.table_side > 0;
  return bytes_of_rows(max_piece, config.patch_values()) +
         (interpolates ? bytes_of_rows(max_piece, config.layers.hidden_size) : 0);
}

}  // namespace

VisionMemory vision_memory(const ModelFile& file, const VisionPlan& plan, const VisionOptions& options,
                           const Backend& backend) {
  const VisionConfig& config = plan.resolved.config;
  Workspace piece(options.max_piece);
  Rows patches, cells, inner;
  LayerRows().declare(config.layers, LayerParts::all, piece);
  piece.add(patches, config.patch_values());
  CellProjector::declare(config, piece, cells, inner);
  return as_unsupported(file, [&]() -> VisionMemory {
    return {.weights_bytes = plan.weights.n_bytes,
            .activation_bytes = piece.n_bytes() + bytes_of_rows(config.max_part_patches(), config.layers.hidden_size) +
                                bytes_of_rows(config.max_part_cells(), config.width) +
                                backend.kv_bytes(cache_geometry(config)) + host_bytes(config, options.max_piece),
            .scratch_bytes = op_scratch_bytes(needs_apart_from_weights(config, options), plan.weights, backend)};
  });
}

VisionTower::VisionTower(const VisionModel& model, Backend& backend, const VisionOptions& options)
    : config_(model.config),
      weights_(model.weights),
      backend_(backend),
      options_(options),
      facts_(facts_of(config_, options)),
      stages_(stages_of(config_)),
      patches_(config_),
      positions_(config_, weights_, backend),
      ropes_(ropes_of(config_.layers)),
      workspace_(options.max_piece, backend),
      body_(config_.layers, ropes_, backend, workspace_),
      projector_(config_, weights_, backend, workspace_),
      stream_(backend.make_rows(config_.max_part_patches(), config_.layers.hidden_size)),
      encoding_(backend.make_rows(config_.max_part_cells(), config_.width)),
      pool_(backend.make_kv_pool(cache_geometry(config_))),
      every_patch_(numbers_up_to(config_.max_part_patches())),
      blocks_(numbers_up_to(pool_->geometry().n_blocks)),
      patch_values_(static_cast<std::size_t>(options.max_piece) * static_cast<std::size_t>(config_.patch_values())),
      stage_(stages_.size()) {
  IMP_CHECK(options.decoder_row_cost > 0);
  workspace_.add(patch_rows_, config_.patch_values());
  backend_.reserve(all_needs(config_, weights_, options_));
}

void VisionTower::begin(const Media& media, int part) {
  const MediaPart& now = media.parts[static_cast<std::size_t>(part)];
  check_part(config_, now);
  part_ = &now;
  grid_ = config_.patches_of(now.grid[0], now.grid[1]);
  ends_.assign(static_cast<std::size_t>(grid_.count()), grid_.count());
  stage_ = 0;
  row_ = 0;
}

Rows VisionTower::encoding() const noexcept {
  return first(encoding_, static_cast<std::size_t>(config_.cells_of(grid_).count()));
}

int VisionTower::advance(int n_rows) {
  IMP_CHECK(!is_done());
  const double budget = n_rows * options_.decoder_row_cost;
  double spent = run_piece(budget);
  while (!is_done() && budget - spent >= kLeastPiece * cost_of_row()) spent += run_piece(budget - spent);
  return static_cast<int>(std::ceil(spent / options_.decoder_row_cost));
}

double VisionTower::run_piece(double budget) {
  const double cost = cost_of_row();
  const int most = std::min(options_.max_piece, rows_of_stage() - row_);
  const int least = std::min(kLeastPiece, most);
  const int n = static_cast<int>(std::clamp<double>(budget / cost, least, most));
  workspace_.use(static_cast<std::size_t>(n));
  run_stage(n);
  row_ += n;
  if (row_ == rows_of_stage()) {
    ++stage_;
    row_ = 0;
  }
  return n * cost;
}

void VisionTower::run_stage(int n) {
  switch (stage().kind) {
    case Kind::embed:
      return embed(n);
    case Kind::keys:
      return append_keys(n);
    case Kind::layer:
      return evaluate_layer(n);
    case Kind::cells:
      return project(n);
  }
}

int VisionTower::rows_of_stage() const noexcept {
  return (stage().kind == Kind::cells ? config_.cells_of(grid_) : grid_).count();
}

double VisionTower::cost_of_row() const noexcept {
  const ModelConfig& layers = config_.layers;
  const double hidden = layers.hidden_size, heads = layers.n_heads * layers.head_dim;
  const int n_products = layers.plain_activation ? 2 : 3;
  switch (stage().kind) {
    case Kind::embed:
      return hidden * config_.patch_values();
    case Kind::keys:
      return 2 * hidden * layers.n_kv_heads * layers.head_dim;
    case Kind::layer:
      return 2 * heads * (hidden + grid_.count()) + n_products * hidden * layers.ffn_size;
    case Kind::cells:
      return CellProjector::cost_of_cell(config_, stage().index);
  }
  return 0;
}

Layer VisionTower::layer() const {
  const auto i = static_cast<std::size_t>(stage().index);
  return {config_.layers.layers[i], weights_.layers[i]};
}

Batch VisionTower::batch(int n) {
  sequence_ = {.first_row = 0, .n_rows = n, .first_position = row_, .blocks = blocks_, .ends = part_of(ends_, row_, n)};
  return {.tokens = {}, .positions = {}, .sequences = {&sequence_, 1}, .logits_rows = {}};
}

void VisionTower::take_stream(int n) {
  backend_.gather_rows(stream_, part_of(every_patch_, row_, n), body_.stream());
}

void VisionTower::put_stream(Rows rows) {
  const std::span<const std::int32_t> every_row = part_of(every_patch_, 0, rows.n_rows);
  backend_.gather_rows(rows, every_row, rows_from(stream_, row_, every_row.size()));
}

void VisionTower::embed(int n) {
  const auto width = static_cast<std::size_t>(config_.patch_values());
  const std::span<float> values = std::span(patch_values_).first(static_cast<std::size_t>(n) * width);
  for (int i = 0; i < n; ++i) {
    patches_.read(*part_, row_ + i, values.subspan(static_cast<std::size_t>(i) * width, width));
  }
  const Rows stream = body_.stream();
  backend_.write_rows(values, patch_rows_);
  backend_.linear(patch_rows_, std::array{LinearTerm{weights_.patches.get(), weights_.patch_bias.get(), stream}});
  positions_.add_to(stream, grid_, row_, body_.branch());
  put_stream(stream);
}

// What both stages of a layer begin with.
void VisionTower::begin_layer(int n) {
  if (!ropes_.empty()) body_.begin(positions_.places(grid_, row_, n));
  take_stream(n);
  body_.normalize_for(layer());
}

void VisionTower::append_keys(int n) {
  const Layer now = layer();
  begin_layer(n);
  body_.append_keys(now, body_.normed(), batch(n), *pool_);
}

// The norm behind the last layer is part of it.
void VisionTower::evaluate_layer(int n) {
  const Layer now = layer();
  begin_layer(n);
  body_.project_queries(now, body_.normed());
  body_.attend(now, batch(n), *pool_);
  body_.finish_attention(now);
  body_.feed_forward(now);
  body_.add_branch(now, nullptr);
  const bool is_last = stage().index == config_.layers.n_layers - 1;
  if (!is_last || weights_.final_norm.weight == nullptr) return put_stream(body_.stream());
  normalize(backend_, config_.layers, body_.stream(), weights_.final_norm, nullptr, body_.normed());
  put_stream(body_.normed());
}

void VisionTower::project(int n) {
  const int slice = stage().index, width = config_.slice_width();
  const Rows out = columns(rows_from(encoding_, row_, static_cast<std::size_t>(n)), slice * width, width);
  projector_.project(slice, stream_, {.patches = grid_, .first = row_, .n = n}, out);
}

}  // namespace imp
