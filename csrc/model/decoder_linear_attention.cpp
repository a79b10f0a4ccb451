// Linear attention: the gated delta rule, over a recurrent state.
#include <array>
#include <cstddef>

#include "model/decoder.h"
#include "model/row_views.h"

namespace imp {

void Decoder::linear_attention(const Batch& batch, KvPool& pool, int i) {
  const LayerWeights& w = weights_.layers[static_cast<std::size_t>(i)];
  const int state = config_.layers[static_cast<std::size_t>(i)].state;
  const DeltaRule& rule = config_.delta;
  backend_.linear(layer_input(),
                  std::array{LinearTerm{w.q.get(), nullptr, columns(mixed_, 0, rule.key_width())},
                             LinearTerm{w.k.get(), nullptr, columns(mixed_, rule.key_width(), rule.key_width())},
                             LinearTerm{w.v.get(), nullptr, columns(mixed_, 2 * rule.key_width(), rule.value_width())},
                             LinearTerm{w.output_gate.get(), nullptr, linear_gate_},
                             LinearTerm{w.alpha.get(), nullptr, alpha_}, LinearTerm{w.beta.get(), nullptr, beta_}});
  backend_.short_conv(pool, state, batch.sequences, mixed_, *w.conv, convolved_);
  backend_.delta_rule(pool, state, batch.sequences, rule,
                      {convolved_, alpha_, beta_, w.decay_rates.get(), w.dt_bias.get()}, read_);
  backend_.rms_norm_gated(read_, norm(w.linear_norm), linear_gate_, read_);
  backend_.linear(read_, std::array{LinearTerm{w.output.get(), nullptr, branch_}});
  finish_attention(w, i);
}

}  // namespace imp
