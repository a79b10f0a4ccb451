// The CPU backend's ops that compute each row by itself: norms, rotations, activations, arithmetic.
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/row_tasks.h"

namespace imp::cpu {

void CpuBackend::rms_norm(Rows x, const Norm& norm, Rows out) {
  const OpTimer timer = run(Op::rms_norm);
  for_rows(x.n_rows, x.width, [&](int row) {
    ops_.rms_norm(row_of(x, row), norm.weight->data(), x.width, norm.epsilon, row_of(out, row));
  });
}

void CpuBackend::add_norm(Rows x, Rows y, const Norm& norm, Rows out) {
  const OpTimer timer = run(Op::add_norm);
  for_rows(x.n_rows, x.width, [&](int row) {
    ops_.add(row_of(x, row), row_of(y, row), x.width);
    ops_.rms_norm(row_of(x, row), norm.weight->data(), x.width, norm.epsilon, row_of(out, row));
  });
}

void CpuBackend::rope_angles(std::span<const std::int32_t> positions, const Rope& rope, Rows out) {
  const OpTimer timer = run(Op::rope_angles);
  const bool has_planes = !rope.planes.empty() && std::ssize(positions) > out.n_rows;
  if (has_planes) count(Op::rope_planes);
  // A sine costs about as much as eight elements elsewhere.
  for_rows(out.n_rows, 8 * rope.dims, [&](int i) {
    const std::int32_t* const first = positions.data() + i;
    if (has_planes) {
      const PlanePositions at = {.first = first, .stride = out.n_rows, .planes = rope.planes.data()};
      return ops_.rope_planes(at, rope.frequencies.data(), rope.dims / 2, rope.magnitude, row_of(out, i));
    }
    ops_.rope_angles(*first, rope.frequencies.data(), rope.dims / 2, rope.magnitude, row_of(out, i));
  });
}

void CpuBackend::rope(Rows x, int head_dim, const Norm& norm, const Rope& rope, Rows angles) {
  const OpTimer timer = run(Op::rope);
  const auto rotate = rope.style == RopeStyle::adjacent ? ops_.rope_adjacent : ops_.rope_halves;
  for_rows(x.n_rows, x.width, [&](int row) {
    for (int i = 0; i < x.width; i += head_dim) {
      float* const head = row_of(x, row) + i;
      if (norm.weight != nullptr) ops_.rms_norm(head, norm.weight->data(), head_dim, norm.epsilon, head);
      rotate(head, row_of(angles, row), rope.dims / 2);
    }
  });
}

void CpuBackend::gated_activation(GatedActivation kind, Rows gate, Rows up, Rows out) {
  const OpTimer timer = run(Op::gated_activation);
  const auto activate = activation(kind);
  for_pieces(gate.n_rows, gate.width, [&](int row, int first, int n) {
    activate(row_of(gate, row) + first, row_of(up, row) + first, n, row_of(out, row) + first);
  });
}

void CpuBackend::add(Rows x, Rows y) {
  const OpTimer timer = run(Op::add);
  for_pieces(x.n_rows, x.width,
             [&](int row, int first, int n) { ops_.add(row_of(x, row) + first, row_of(y, row) + first, n); });
}

void CpuBackend::add_gated(Rows x, Rows y, Rows gates) {
  const OpTimer timer = run(Op::add_gated);
  for_pieces(x.n_rows, x.width, [&](int row, int first, int n) {
    ops_.add_gated(row_of(x, row) + first, row_of(y, row) + first, n, *row_of(gates, row));
  });
}

void CpuBackend::scale(Rows x, float factor) {
  const OpTimer timer = run(Op::scale);
  for_pieces(x.n_rows, x.width, [&](int row, int first, int n) { ops_.scale(row_of(x, row) + first, n, factor); });
}

void CpuBackend::clamp(Rows x, float low, float high, Rows out) {
  const OpTimer timer = run(Op::clamp);
  for_pieces(x.n_rows, x.width, [&](int row, int first, int n) {
    ops_.clamp(row_of(x, row) + first, n, low, high, row_of(out, row) + first);
  });
}

void CpuBackend::standardize(Rows x, const Vector& mean, const Vector& factors) {
  const OpTimer timer = run(Op::standardize);
  for_pieces(x.n_rows, x.width, [&](int row, int first, int n) {
    ops_.standardize(row_of(x, row) + first, mean.data() + first, factors.data() + first, n);
  });
}

void CpuBackend::layer_norm(Rows x, int run_length, const Norm& norm, Rows out) {
  const OpTimer timer = run(Op::layer_norm);
  for_rows(x.n_rows, x.width, [&](int row) {
    for (int i = 0; i < x.width; i += run_length) {
      const float* const bias = norm.bias != nullptr ? norm.bias->data() + i : nullptr;
      ops_.layer_norm(row_of(x, row) + i, norm.weight->data() + i, bias, run_length, norm.epsilon,
                      row_of(out, row) + i);
    }
  });
}

void CpuBackend::activate(PlainActivation kind, const imp::XieluParams& params, Rows x) {
  const OpTimer timer = run(Op::activate);
  const XieluParams xielu = {params.positive, params.negative, params.slope, params.largest};
  for_pieces(x.n_rows, x.width, [&](int row, int first, int n) {
    float* const piece = row_of(x, row) + first;
    switch (kind) {
      case PlainActivation::gelu_tanh:
        return ops_.plain_gelu_tanh(piece, n);
      case PlainActivation::gelu_erf:
        return ops_.gelu_erf(piece, n);
      case PlainActivation::relu_squared:
        return ops_.relu_squared(piece, n);
      case PlainActivation::xielu:
        return ops_.xielu(piece, n, xielu);
      case PlainActivation::tanh:
        return ops_.tanh(piece, n);
    }
  });
}

void CpuBackend::clamped_activation(const ClampedSilu& kind, Rows gate, Rows up, Rows out) {
  const OpTimer timer = run(Op::clamped_activation);
  for_pieces(gate.n_rows, gate.width, [&](int row, int first, int n) {
    ops_.clamped_silu(row_of(gate, row) + first, row_of(up, row) + first, n, kind.limit, kind.slope,
                      row_of(out, row) + first);
  });
}

void CpuBackend::scale_by_position(Rows x, std::span<const std::int32_t> positions, const PositionScale& scale) {
  const OpTimer timer = run(Op::scale_by_position);
  for_rows(x.n_rows, x.width, [&](int row) {
    const double turns = positions[static_cast<std::size_t>(row)] / scale.period;
    const double factor = 1 + static_cast<double>(scale.growth) * std::log1p(turns);
    if (factor != 1) ops_.scale(row_of(x, row), x.width, static_cast<float>(factor));
  });
}

void CpuBackend::norm_heads(Rows x, int run_length, const Norm& norm, Rows out) {
  const OpTimer timer = run(Op::norm_heads);
  const float* const weight = norm.weight != nullptr ? norm.weight->data() : nullptr;
  for_rows(x.n_rows, x.width, [&](int row) {
    for (int i = 0; i < x.width; i += run_length) {
      ops_.rms_norm(row_of(x, row) + i, weight, run_length, norm.epsilon, row_of(out, row) + i);
    }
  });
}

void CpuBackend::multiply_sigmoid(Rows x, Rows gates) {
  const OpTimer timer = run(Op::multiply_sigmoid);
  for_pieces(x.n_rows, x.width, [&](int row, int first, int n) {
    ops_.multiply_sigmoid(row_of(x, row) + first, row_of(gates, row) + first, n);
  });
}

void CpuBackend::rms_norm_gated(Rows x, const Norm& norm, Rows gates, Rows out) {
  const OpTimer timer = run(Op::rms_norm_gated);
  const int n = norm.weight->size();
  for_rows(x.n_rows, x.width, [&](int row) {
    for (int i = 0; i < x.width; i += n) {
      float* const to = row_of(out, row) + i;
      ops_.rms_norm(row_of(x, row) + i, norm.weight->data(), n, norm.epsilon, to);
      ops_.silu(row_of(gates, row) + i, to, n, to);
    }
  });
}

void CpuBackend::soft_cap(Rows x, float cap) {
  const OpTimer timer = run(Op::soft_cap);
  for_pieces(x.n_rows, x.width, [&](int row, int first, int n) { ops_.soft_cap(row_of(x, row) + first, n, cap); });
}

}  // namespace imp::cpu
