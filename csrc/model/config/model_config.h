// The configuration of decoder-only transformers: one field for each way in which they differ.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "backend/attention.h"
#include "backend/backend.h"
#include "backend/kv_types.h"
#include "model/config/pooling.h"

namespace imp {

// What a layer normalizes.
enum class NormPlacement : std::uint8_t {
  pre,           // the inputs of attention and feed-forward
  post,          // their outputs before they are added
  pre_and_post,  // both
  after_sum,     // the stream after an output is added to it
};

// The norm of the residual stream.
enum class NormKind : std::uint8_t {
  rms,
  layer,  // LayerNorm: the mean is subtracted first
};

// What is normalized of q and k.
enum class QkNorm : std::uint8_t {
  none,
  head,          // each head by itself, before it is rotated
  rotated_head,  // each head by itself, after it is rotated
  width,         // all heads of a row together, before they are rotated
  layer,         // each head by itself by LayerNorm with its own weights, before it is rotated
};

enum class RopeScalingKind : std::uint8_t {
  none,
  linear,      // divides every frequency by factor
  yarn,        // YaRN: divides only low frequencies, with a ramp over pairs; and sharpens the scores
  wavelength,  // divides only low frequencies, with a ramp over wavelengths; "llama3" in configurations
  longrope,    // divides every frequency by a number of its own, which depends on the context
  dynamic,     // theta grows with the context beyond the original one ("NTK-aware")
};

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::none;
  double factor = 1;            // relative to the trained context
  int original_context = 0;     // all but linear: tokens the model was first trained on
  int context = 0;              // longrope, dynamic: tokens to serve; resolved once, so a sequence never changes it
  double extrapolation = 1;     // yarn: weight of the ramp; 0 scales all frequencies equally
  double attention_factor = 1;  // yarn: multiplies the magnitude that follows from factor; longrope: the magnitude
  double mscale = 1;            // yarn: growth of the magnitude with the logarithm of factor
  double mscale_all_dim = 0;    // yarn: the same for the divisor of the magnitude
  bool truncated = true;        // yarn: the ends of the ramp are rounded to whole pairs
  double beta_fast = 32;        // yarn: pairs with more rotations than this in original_context keep their frequency
  double beta_slow = 1;         // yarn: pairs with fewer rotations than this are scaled in full
  double low_freq_factor = 1;   // wavelength: as beta_slow
  double high_freq_factor = 4;  // wavelength: as beta_fast
  // longrope: the divisors [dims / 2] within the original context and beyond it; empty if tensors hold them.
  std::vector<float> short_divisors, long_divisors;

  bool is_beyond_original() const noexcept { return context > original_context; }
};

// One kind of rotary embedding (RoPE). A model has one, or two: one for windowed layers and one for the others.
struct RopeConfig {
  RopeStyle style = RopeStyle::halves;
  int dims = 0;             // rotated elements of each head, the first ones
  double theta = 10000;     // frequency of pair i is theta^(-2i / dims)
  int n_rotated_pairs = 0;  // the first ones are rotated, the others are not; 0: all are
  RopeScaling scaling;
  bool file_factors = false;  // the file holds a divisor for each frequency (`rope_freqs.weight`)
  // M-RoPE: the plane of positions by which each pair rotates; empty: rows have one position.
  std::vector<std::uint8_t> planes = {};
  bool is_axial = false;  // each plane has an equal run of pairs, and the frequencies begin anew with each run
};

// What a product reads and what it writes is kept within bounds.
struct Clip {
  float least_input = -std::numeric_limits<float>::infinity();
  float greatest_input = std::numeric_limits<float>::infinity();
  float least_output = -std::numeric_limits<float>::infinity();
  float greatest_output = std::numeric_limits<float>::infinity();
};

// Of the products of a layer.
struct LayerClips {
  Clip q, k, v, output, gate, up, down;
};

struct LayerConfig {
  int n_kv_heads = 0;  // divides n_heads
  int head_dim = 0;    // of q, k and v alike
  int ffn_size = 0;    // of the feed-forward that is no expert
  int window = 0;      // sliding window: keys this far back and further are masked; 0: none
  // Keys after its own that a row sees, or kAllAhead: a row of a medium within it, any row if the model is two-sided.
  int ahead = 0;
  int rope = 0;                  // index into ModelConfig::ropes, or kNoRope
  int kv = 0;                    // layer of the KV cache, which later layers may share, or kNoKv
  bool shares_kv = false;        // an earlier layer writes its keys and values
  bool values_are_keys = false;  // v is the product for k, before that is normalized and rotated
  int state = -1;                // layer of the recurrent state, of linear attention, or kNoState
  bool has_experts = false;
  bool has_attention_norm = true;  // attention reads a norm of the stream, if those of the model do
  float output_scale = 1;          // multiplies the residual stream after the layer
  XieluParams xielu;               // of PlainActivation::xielu
  std::optional<LayerClips> clips = {};
};
inline constexpr int kNoRope = -1;  // the layer does not rotate q and k
inline constexpr int kNoKv = -1;    // the layer has no keys and values
inline constexpr int kNoState = -1;

// The types of some layers of the cache.
struct KvRange {
  int first = 0;
  int last = 0;
  KvTypes types = {};
};

// An embedding of each token for each layer by itself: a row of a table, plus a projection of the token's embedding.
struct LayerEmbedding {
  int size = 0;                 // elements for each layer; 0: none
  float table_scale = 1;        // multiplies the table's rows
  float norm_epsilon = 0;       // of the projection, which is normalized for each layer by itself
  float projection_scale = 1;   // multiplies the normalized projection
  std::int32_t cell_token = 0;  // whose row of the table cells of media have
};

// What is added to the embedding of a token.
struct TextEmbedding {
  int position_rows = 0;    // of the table of positions; 0: there is none
  int position_offset = 0;  // the row of position 0
  int n_token_types = 0;    // rows of the table of types; 0: there is none
  bool is_normed = false;   // the sum is normalized
};

// Makes the scores of a text of its pooled row.
struct ScoreHead {
  bool has_dense = false;  // a product with tanh before the last one
};

// A product behind the pooling.
struct Projection {
  int size = 0;  // of its result
  bool has_bias = false;
  std::optional<PlainActivation> activation;
};

// A resolved checkpoint: file facts, the architecture's defaults, the user's overrides. Validated, then constant.
struct ModelConfig {
  // sizes
  int n_layers = 0;
  int n_draft_layers = 0;  // in the file after the others: they guess further tokens (HeadConfig)
  int hidden_size = 0;
  int n_heads = 0;
  // For reports and checks: those of the last layer that has no window. Code uses those of each layer in `layers`.
  int ffn_size = 0;
  int n_kv_heads = 0;
  int head_dim = 0;
  int vocab_size = 0;  // rows of the embedding and the head
  int n_tokens = 0;    // valid token ids are less than this; further rows are padding
  int trained_context = 0;
  int max_context = 0;  // the trained context unless overridden

  // embedding and head
  float embedding_scale = 1;  // multiplies the embedding's rows
  TextEmbedding text_embedding;
  bool has_head = true;    // it makes logits
  bool tied_head = false;  // the head is the embedding
  LayerEmbedding layer_embedding;
  int n_deepstack_layers = 0;  // after these first layers, rows of media get a further part of their encoding
  float logit_scale = 1;       // multiplies the logits
  float logit_soft_cap = 0;    // logit soft-capping: cap · tanh(logit / cap); 0: none

  // vectors of texts
  Pooling pooling = Pooling::none;
  std::optional<ScoreHead> score_head;
  std::vector<Projection> projections;  // in turn

  // norms
  NormKind norm_kind = NormKind::rms;
  bool norm_bias = false;
  float norm_epsilon = 0;  // added inside the root of every norm
  NormPlacement norm_placement = NormPlacement::pre;
  bool has_final_norm = true;
  QkNorm qk_norm = QkNorm::none;
  bool value_norm = false;       // each head of v is normalized, without a weight
  float residual_scale = 1;      // multiplies what attention and feed-forward add to the residual stream
  bool parallel_blocks = false;  // attention and feed-forward read the same norm of the stream

  // attention
  bool is_two_sided = false;  // rows also see the rows of their text behind them
  bool qkv_bias = false;
  bool output_bias = false;      // of attention's output
  float attention_scale = 0;     // multiplies q · k
  PositionScale query_scale;     // of rotated queries
  float attention_soft_cap = 0;  // cap · tanh(score / cap); 0: none
  bool attention_sinks = false;  // each head has a score of a key without a value
  bool output_gate = false;      // attention's output is multiplied by the sigmoid of a gate
  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layers;  // [n_layers]

  // linear attention, in layers with a recurrent state
  DeltaRule delta;
  int conv_taps = 0;  // of the convolution before it, the row itself included

  // feed-forward: down(activation(gate) · up), or down(activation(up)) without a gate
  GatedActivation activation = GatedActivation::silu;
  std::optional<PlainActivation> plain_activation;  // the feed-forward has no gate
  bool ffn_bias = false;                            // of gate, up and down
  // With experts (mixture of experts) a router chooses some feed-forwards for each row. Layers without experts have one
  // feed-forward of ffn_size.
  ExpertRouting experts;
  int expert_ffn_size = 0;
  bool has_expert_scales = false;  // the weight of each expert is multiplied by its own factor
  // Layers with experts also have a feed-forward of ffn_size. Both, and the router, normalize the stream by themselves;
  // both results are normalized before they are added.
  bool dense_beside_experts = false;
  bool expert_bias = false;                 // of the router, and of gate, up and down
  std::optional<ClampedSilu> clamped_silu;  // of experts, instead of `activation`
  // Size of the shared expert, which every row uses; 0: none.
  int shared_ffn_size = 0;
  bool shared_is_gated = true;  // its output is multiplied by the sigmoid of its own gate

  // Whether attention and feed-forward read a norm of the stream.
  bool norms_inputs() const noexcept {
    return norm_placement == NormPlacement::pre || norm_placement == NormPlacement::pre_and_post;
  }
  // The width of logits.
  int n_logits() const noexcept { return has_head ? vocab_size : 0; }
  PoolingFacts pooling_facts() const noexcept {
    const int of_row = projections.empty() ? hidden_size : projections.back().size;
    return {.pooling = pooling,
            .width = pooling == Pooling::none   ? 0
                     : pooling == Pooling::rank ? 1
                                                : of_row,
            .n_token_types = text_embedding.n_token_types > 1 ? text_embedding.n_token_types : 0,
            .needs_whole_texts = is_two_sided || pooling == Pooling::mean,
            .sees_all = is_two_sided};
  }
  bool has_clips() const noexcept {
    return std::ranges::any_of(layers, [](const LayerConfig& layer) { return layer.clips.has_value(); });
  }
  int n_kv_layers() const noexcept {
    int last = kNoKv;
    for (const LayerConfig& layer : layers) last = std::max(last, layer.kv);
    return last + 1;
  }
  int n_state_layers() const noexcept {
    return static_cast<int>(
        std::ranges::count_if(layers, [](const LayerConfig& layer) { return layer.state != kNoState; }));
  }
  // Of a row of an encoding: what replaces the embedding, and what is added after each layer with DeepStack.
  int media_width() const noexcept { return hidden_size * (1 + n_deepstack_layers); }
  // Whether the cells of a part of a medium see each other, so that one step has to evaluate all of them.
  bool has_atomic_media() const noexcept { return !is_two_sided && max_of(&LayerConfig::ahead) > 0; }
  // The token that rows of cells have, of a model whose prompts have `placeholder` there.
  std::int32_t cell_token(std::int32_t placeholder) const noexcept {
    return layer_embedding.size > 0 ? layer_embedding.cell_token : placeholder;
  }
  // The greatest size of any layer.
  int max_of(int LayerConfig::* size) const noexcept {
    int found = 0;
    for (const LayerConfig& layer : layers) found = std::max(found, layer.*size);
    return found;
  }
  int widest_kv() const noexcept {
    int found = 0;
    for (const LayerConfig& layer : layers) found = std::max(found, layer.n_kv_heads * layer.head_dim);
    return found;
  }
  // By layer of the cache; `others` are the types of those that no range names.
  std::vector<KvTypes> kv_types_by_layer(KvTypes others) const {
    std::vector<KvTypes> types(static_cast<std::size_t>(n_kv_layers()), others);
    for (const KvRange& range : kv_ranges)
      std::fill(types.begin() + range.first, types.begin() + range.last + 1, range.types);
    return types;
  }
  bool has_experts() const noexcept { return experts.n_experts > 0; }
  bool has_dense_layers() const noexcept {
    return dense_beside_experts ||
           std::ranges::any_of(layers, [](const LayerConfig& layer) { return !layer.has_experts; });
  }

  // execution
  KvTypes kv_types = {};                        // of the cache
  std::vector<KvRange> kv_ranges;               // of some of its layers; where they overlap, the last one counts
  std::vector<std::int32_t> eos_tokens;         // the user's override, checked here; the service reads the file's
  std::vector<std::int32_t> suppressed_tokens;  // ascending; never sampled
};

}  // namespace imp
