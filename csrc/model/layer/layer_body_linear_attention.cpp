// Linear attention: the gated delta rule, over a recurrent state.
#include <array>

#include "model/layer/layer_body.h"
#include "model/layer/row_views.h"

namespace imp {

void LayerBody::linear_attention(const Layer& layer, const Batch& batch, KvPool& pool) {
  const LayerWeights& w = layer.weights;
  const int state = layer.config.state;
  const DeltaRule& rule = config_.delta;
  const int keys = rule.key_width();
  backend_.linear(
      input(),
      std::array{LinearTerm{w.q.get(), nullptr, columns(rows_.mixed, 0, keys)},
                 LinearTerm{w.k.get(), nullptr, columns(rows_.mixed, keys, keys)},
                 LinearTerm{w.v.get(), nullptr, columns(rows_.mixed, 2 * keys, rule.value_width())},
                 LinearTerm{w.output_gate.get(), nullptr, rows_.linear_gate},
                 LinearTerm{w.alpha.get(), nullptr, rows_.alpha}, LinearTerm{w.beta.get(), nullptr, rows_.beta}});
  backend_.short_conv(pool, state, batch.sequences, rows_.mixed, *w.conv, rows_.convolved);
  backend_.delta_rule(pool, state, batch.sequences, rule,
                      {rows_.convolved, rows_.alpha, rows_.beta, w.decay_rates.get(), w.dt_bias.get()}, rows_.read);
  backend_.rms_norm_gated(rows_.read, norm(w.linear_norm), rows_.linear_gate, rows_.read);
  backend_.linear(rows_.read, std::array{LinearTerm{w.output.get(), nullptr, rows_.branch}});
  finish_attention(layer);
}

}  // namespace imp
