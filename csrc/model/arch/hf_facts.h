// The facts that config.json has for all decoders.
#pragma once

#include "model/arch/decoder_facts.h"

namespace imp {

// Values of keys that the files of a family may omit; 0: the key is required.
struct HfDefaults {
  int n_layers = 0;
  int hidden_size = 0;
  int ffn_size = 0;
  int n_heads = 0;
  int n_kv_heads = 0;  // 0: as many as n_heads; null in a file means the same
  int context = 0;
  float epsilon = 0;
};

struct HfTraits {
  int head_dim = 0;  // if the file has no head_dim; 0: hidden_size / n_heads, as null in a file
  std::string_view epsilon = "rms_norm_eps";
  int query_scalar = 0;       // if the file has no query_pre_attn_scalar; 0: the head's size
  bool has_gate = true;       // of the feed-forward
  bool gelu_is_tanh = false;  // "gelu" means its approximation by tanh
  HfDefaults defaults = {};
};

// Like read_gguf_decoder.
void read_hf_decoder(FactReader& facts, const HfTraits& traits = {});

// RoPE of the layers without a window: ropes[0]. The keys are in `rope_parameters` (under full_attention if layers
// differ), or in `rope_theta` and `rope_scaling`. `default_rotated`: the part of each head that is rotated.
void read_hf_rope(FactReader& facts, RopeStyle style, double default_theta, float default_rotated = 1);

// Whether the file has a section of RoPE keys.
bool has_hf_rope(const FactReader& facts);

// Refuses a section of RoPE keys that has a scaling.
void require_plain_rope(FactReader& facts, const std::string& section);

// M-RoPE, see read_image_axes().
void read_hf_image_axes(FactReader& facts, const ImageAxes& by_default);

// The layers that `layer_types` calls sliding_attention, or those of the period.
void read_hf_windows(FactReader& facts, const MixedWindows& defaults);

// A sliding window for all layers, or none if the key is null.
void read_hf_window(FactReader& facts, int by_default);

// For families with a key that enables windows. `windowed` and `by_default`: the layers without `layer_types`, and the
// size without `sliding_window`.
void read_hf_optional_windows(FactReader& facts, const std::vector<bool>& windowed, int by_default);

// The same for families in which all layers have windows, or none, whatever `layer_types` says.
void read_hf_optional_window(FactReader& facts, int by_default);

// The layers from max_window_layers on have windows.
void read_hf_windows_of_last(FactReader& facts);

// For families without windows: the keys have no effect.
void ignore_hf_windows(FactReader& facts);

inline constexpr int kHfWindow = 4096;  // the default of several families

// The key max_window_layers.
std::uint64_t read_max_window_layers(FactReader& facts);

// Experts; each family has its own keys for number and size.
void read_hf_experts(FactReader& facts, std::string_view count_key, std::string_view ffn_size_key);

// The layers without experts, of families that may have some.
void read_hf_dense_layers(FactReader& facts);

// Refuse a key whose value is not the only supported one. A missing key is accepted.
void require_word(FactReader& facts, std::string_view key, std::string_view word);
void require_flag(FactReader& facts, std::string_view key, bool flag);
void require_integer(FactReader& facts, std::string_view key, std::uint64_t number);
void require_number(FactReader& facts, std::string_view key, float number);

// Reads a soft cap. Null disables it; a missing key keeps the default in `cap`.
void read_hf_soft_cap(FactReader& facts, std::string_view field, std::string_view key, float& cap);

// Marks the keys that do not affect the arithmetic as read, so that the rest is unknown.
void skip_hf_bookkeeping(FactReader& facts);

}  // namespace imp
