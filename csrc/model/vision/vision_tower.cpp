// The stages of a tower, and their cost.
#include "model/vision/vision_tower.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>

#include "base/ceil_div.h"
#include "base/error.h"
#include "model/layer/backend_needs.h"
#include "model/layer/normalize.h"
#include "model/layer/row_views.h"
#include "model/model.h"
#include "model/weights/op_scratch.h"

namespace imp {
namespace {

// Products of fewer rows take about as long.
constexpr int kLeastPiece = 16;

// A cache for the keys and values of one layer.
KvGeometry cache_geometry(const VisionConfig& config) {
  constexpr int kBlockTokens = 16;
  return kv_geometry(config.layers, kBlockTokens, ceil_div(config.n_patches(), kBlockTokens), 0);
}

WorkspaceNeeds needs_apart_from_weights(const VisionConfig& config, const VisionOptions& options) {
  WorkspaceNeeds needs =
      workspace_needs(config.layers, {.max_rows = options.max_piece, .max_logits_rows = 1, .takes_media = true});
  needs.ops.push_back(Op::write_rows);
  return needs;
}

WorkspaceNeeds all_needs(const VisionConfig& config, const VisionWeights& weights, const VisionOptions& options) {
  WorkspaceNeeds needs = needs_apart_from_weights(config, options);
  for (const Matrix* weight : {&weights.patches, &weights.positions, &weights.projection}) {
    needs.weights.push_back(weight->get());
  }
  for (const LayerWeights& layer : weights.layers) add_matrices(layer, needs);
  return needs;
}

std::vector<std::int32_t> numbers_up_to(int n) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

std::span<const std::int32_t> part_of(const std::vector<std::int32_t>& all, int first, int n) {
  return std::span(all).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(n));
}

}  // namespace

void VisionRows::declare(const VisionConfig& config, Workspace& workspace) {
  workspace.add(patches, config.patch_values());
  workspace.add(cells, config.cell_width());
}

VisionMemory vision_memory(const ModelFile& file, const VisionPlan& plan, const VisionOptions& options,
                           const Backend& backend) {
  const VisionConfig& config = plan.resolved.config;
  Workspace piece(options.max_piece);
  LayerRows().declare(config.layers, LayerParts::all, piece);
  VisionRows().declare(config, piece);
  return as_unsupported(file, [&]() -> VisionMemory {
    return {.weights_bytes = plan.weights.n_bytes,
            .activation_bytes = piece.n_bytes() + bytes_of_rows(config.n_patches(), config.layers.hidden_size) +
                                bytes_of_rows(config.n_cells(), config.width) +
                                backend.kv_bytes(cache_geometry(config)),
            .scratch_bytes = op_scratch_bytes(needs_apart_from_weights(config, options), plan.weights, backend)};
  });
}

VisionTower::VisionTower(const VisionModel& model, Backend& backend, const VisionOptions& options)
    : config_(model.config),
      weights_(model.weights),
      backend_(backend),
      options_(options),
      facts_{.width = config_.width,
             .max_rows = config_.n_cells(),
             .max_atomic_cells = 0,
             .placeholder = 0,
             .row_token = 0},
      patches_(config_),
      workspace_(options.max_piece, backend),
      body_(config_.layers, {}, backend, workspace_),
      stream_(backend.make_rows(config_.n_patches(), config_.layers.hidden_size)),
      encoding_(backend.make_rows(config_.n_cells(), config_.width)),
      pool_(backend.make_kv_pool(cache_geometry(config_))),
      every_patch_(numbers_up_to(config_.n_patches())),
      blocks_(numbers_up_to(pool_->geometry().n_blocks)),
      ends_(every_patch_.size(), config_.n_patches()),
      patch_values_(static_cast<std::size_t>(options.max_piece) * static_cast<std::size_t>(config_.patch_values())),
      sources_(static_cast<std::size_t>(options.max_piece)),
      stage_(n_stages()) {
  IMP_CHECK(options.decoder_row_cost > 0);
  rows_.declare(config_, workspace_);
  backend_.reserve(all_needs(config_, weights_, options_));
}

void VisionTower::begin(const Media& media, int part) {
  const MediaPart& tile = media.parts[static_cast<std::size_t>(part)];
  const int side = config_.tile_size;
  const std::size_t n_bytes = std::size_t{3} * static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
  if (tile.grid != std::array{side, side} || tile.pixels.size() != n_bytes || tile.n_rows != config_.n_cells()) {
    throw FieldInvalid("tile", std::to_string(tile.grid[0]) + " x " + std::to_string(tile.grid[1]) + " pixels in " +
                                   std::to_string(tile.pixels.size()) + " bytes for " + std::to_string(tile.n_rows) +
                                   " cells, expected " + std::to_string(side) + " x " + std::to_string(side) + " in " +
                                   std::to_string(n_bytes) + " for " + std::to_string(config_.n_cells()));
  }
  part_ = &tile;
  stage_ = row_ = 0;
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
  if (embeds()) {
    embed(n);
  } else if (projects()) {
    project(n);
  } else {
    writes_keys() ? append_keys(n) : evaluate_layer(n);
  }
  row_ += n;
  if (row_ == rows_of_stage()) {
    ++stage_;
    row_ = 0;
  }
  return n * cost;
}

double VisionTower::cost_of_row() const noexcept {
  const double hidden = config_.layers.hidden_size;
  if (embeds()) return hidden * config_.patch_values();
  if (projects()) return static_cast<double>(config_.cell_width()) * config_.width;
  if (writes_keys()) return 2 * hidden * hidden;
  return 2 * hidden * (hidden + config_.n_patches() + config_.layers.ffn_size);
}

Layer VisionTower::layer() const {
  const auto i = static_cast<std::size_t>((stage_ - 1) / 2);
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
    patches_.read(part_->pixels, row_ + i, values.subspan(static_cast<std::size_t>(i) * width, width));
  }
  const Rows stream = body_.stream(), positions = body_.branch();
  backend_.write_rows(values, rows_.patches);
  backend_.linear(rows_.patches, std::array{LinearTerm{weights_.patches.get(), weights_.patch_bias.get(), stream}});
  backend_.embed(part_of(every_patch_, row_, n), *weights_.positions, 1, positions);
  backend_.add(stream, positions);
  put_stream(stream);
}

void VisionTower::append_keys(int n) {
  const Layer now = layer();
  take_stream(n);
  body_.normalize_for(now);
  body_.append_keys(now, body_.normed(), batch(n), *pool_);
}

// The norm behind the last layer is part of it.
void VisionTower::evaluate_layer(int n) {
  const Layer now = layer();
  take_stream(n);
  body_.normalize_for(now);
  body_.project_queries(now, body_.normed());
  body_.attend(now, batch(n), *pool_);
  body_.finish_attention(now);
  body_.feed_forward(now);
  body_.add_branch(1, nullptr);
  const bool is_last = stage_ == 2 * n_layers();
  if (!is_last) return put_stream(body_.stream());
  normalize(backend_, config_.layers, body_.stream(), weights_.final_norm, nullptr, body_.normed());
  put_stream(body_.normed());
}

// Neighbouring patches become one cell: they lie side by side, row by row.
void VisionTower::project(int n) {
  const int hidden = config_.layers.hidden_size, shuffle = config_.shuffle, cells_a_side = config_.cells_a_side();
  const std::span<std::int32_t> sources = std::span(sources_).first(static_cast<std::size_t>(n));
  for (int place = 0; place < config_.patches_in_cell(); ++place) {
    for (int i = 0; i < n; ++i) {
      const int cell = row_ + i;
      const int row = cell / cells_a_side * shuffle + place / shuffle;
      const int column = cell % cells_a_side * shuffle + place % shuffle;
      sources[static_cast<std::size_t>(i)] = row * config_.patches_a_side() + column;
    }
    backend_.gather_rows(stream_, sources, columns(rows_.cells, place * hidden, hidden));
  }
  backend_.linear(rows_.cells, std::array{LinearTerm{weights_.projection.get(), nullptr,
                                                     rows_from(encoding_, row_, sources.size())}});
}

}  // namespace imp
