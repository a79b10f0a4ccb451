// Runs every kernel of the GPU once on the emulator, at sizes that end within a tile. The sanitizers detect reads and
// writes out of bounds. Other tests check the results.
//
// usage: emulated_kernels [astray]      astray: a thread writes out of bounds; exit status 0: it was not detected
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/make_cuda_backend.h"
#include "native/emulator/emu.h"
#include "native/gpu/backend_memory.h"

namespace imp {
namespace {

constexpr int kRows = 70, kHeads = 4, kKvHeads = 2, kContext = 300;
const std::vector<int> kBatches = {1, 5, kRows};

// A backend, and rows of small numbers.
struct Bench {
  std::unique_ptr<Backend> gpu = cuda::make_cuda_backend({.kind = "cuda_emulated"});

  Rows rows(int n, int width) {
    const Rows made = gpu->make_rows(n, width);
    std::vector<float> values(static_cast<std::size_t>(made.stride) * static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(static_cast<int>(i % 23) - 11) / 8;
    cuda::write_device(*gpu, made.data, values.data(), values.size() * sizeof(float));
    return made;
  }

  std::unique_ptr<Vector> vector(int n) { return gpu->load_vector(std::vector<float>(static_cast<std::size_t>(n), 1)); }

  std::unique_ptr<Linear> weight(DType dtype, int n, int k, std::string_view kernel) {
    const std::vector<GemmOverride> wanted = {{"w", std::string(kernel)}};
    const GemmProblem problem = {dtype, n, k};
    const auto read = [&](std::int64_t, std::int64_t n_rows, std::byte* out) {
      std::memset(out, 0x11, static_cast<std::size_t>(n_rows * *row_bytes(dtype, k)));
    };
    const PlanPolicy policy = {.unvalidated_kernels = true};
    return gpu->load_linear({"w", problem, read}, gpu->registry().plan(problem, "w", wanted, policy));
  }

  // The rows are heads of this many elements, with these weights.
  void reserve(int head_dim, std::vector<const Linear*> weights) {
    gpu->reserve({.max_rows = kRows,
                  .max_logits_rows = kRows,
                  .max_sequences = kRows,
                  .vocab_size = 333,
                  .max_context = kContext,
                  .attention = {.n_heads = kHeads, .n_kv_heads = kKvHeads, .head_dim = head_dim, .scale = 0.1F},
                  .weights = std::move(weights)});
    cuda::fill_scratch(*gpu, 0xFF);
  }
};

void multiply(Bench& bench, DType dtype, std::string_view kernel) {
  const auto block = static_cast<int>(traits(dtype).block_elements);
  const int n = 37, k = block == 1 ? 275 : block < 256 ? 512 + block : 512;
  const auto gate = bench.weight(dtype, n, k, kernel), up = bench.weight(dtype, n, k, kernel);
  const auto bias = bench.vector(n);
  bench.reserve(64, {gate.get(), up.get()});
  for (const int m : kBatches) {
    const Rows x = bench.rows(m, k);
    const LinearTerm terms[] = {{gate.get(), bias.get(), bench.rows(m, n)}, {up.get(), nullptr, bench.rows(m, n)}};
    bench.gpu->linear(x, terms);
    bench.gpu->gated_linear(x, {gate.get(), nullptr, up.get(), bias.get(), bench.rows(m, n)}, GatedActivation::silu);
  }
  const std::vector<std::int32_t> tokens = {0, n - 1, 5};
  bench.gpu->embed(tokens, *gate, 2, bench.rows(3, k));
}

void send_to_experts(Bench& bench, DType dtype, std::string_view kernel) {
  const int n = 37, k = 512;
  const ExpertRouting routing = {.n_experts = 5, .n_used = 2, .normalized = true, .scale = 1};
  std::vector<std::unique_ptr<Linear>> experts;
  WorkspaceNeeds needs = {.max_rows = kRows,
                          .max_logits_rows = 1,
                          .max_sequences = 1,
                          .vocab_size = 16,
                          .max_context = 16,
                          .attention = {.n_heads = 1, .n_kv_heads = 1, .head_dim = 8},
                          .experts = routing};
  for (int i = 0; i < routing.n_experts; ++i) {
    experts.push_back(bench.weight(dtype, n, k, kernel));
    needs.expert_weights.push_back(experts.back().get());
  }
  bench.gpu->reserve(needs);
  for (const int m : {1, kRows}) {
    const ExpertRows sent = bench.gpu->make_expert_rows(m, routing);
    bench.gpu->route_experts(bench.rows(m, routing.n_experts), routing, sent);
    const Rows grouped = bench.rows(2 * m, n);
    const ExpertTerm terms[] = {{experts, grouped}};
    bench.gpu->expert_linear_in(bench.rows(m, k), sent, terms);
    bench.gpu->expert_linear_out(bench.rows(2 * m, k), sent, terms[0]);
    bench.gpu->mix_experts(grouped, sent, bench.rows(m, n));
  }
}

void attend(Bench& bench, KvType type, int head_dim) {
  bench.reserve(head_dim, {});
  const KvGeometry geometry = {.layers = equal_layers(2, {kKvHeads, head_dim, {type, type}}), .n_blocks = 24};
  const auto pool = bench.gpu->make_kv_pool(geometry);
  std::vector<std::int32_t> blocks(20);
  std::iota(blocks.rbegin(), blocks.rend(), 3);
  const auto norm = bench.vector(head_dim);
  const Rope rope = {.dims = head_dim / 2,
                     .frequencies = std::vector<double>(static_cast<std::size_t>(head_dim / 4), 1)};
  for (int position = 0; position < kContext - kRows; position += kRows) {
    const SequenceRows prompt[] = {{0, kRows, position, blocks}};
    std::vector<std::int32_t> positions(kRows);
    std::iota(positions.begin(), positions.end(), position);
    const Rows angles = bench.rows(kRows, rope.dims);
    bench.gpu->rope_angles(positions, rope, angles);
    const Rows q = bench.rows(kRows, kHeads * head_dim), v = bench.rows(kRows, kKvHeads * head_dim);
    const RopeTerm of_q = {q, {norm.get(), 1e-5F}}, of_k = {bench.rows(kRows, kKvHeads * head_dim), {}};
    bench.gpu->rope_append(*pool, 1, prompt, head_dim, rope, angles, of_q, of_k, v);
    bench.gpu->append_kv(*pool, 0, prompt, of_k.x, v);
    bench.gpu->rope(q, head_dim, of_q.norm, rope, angles);
    AttentionParams params = {kHeads, kKvHeads, head_dim, 0.1F, 0, 0};
    bench.gpu->attend(*pool, 1, prompt, params, q, bench.rows(kRows, q.width));
    params.soft_cap = 5;
    params.window = 100;
    const SequenceRows last[] = {{0, 1, position + kRows - 1, blocks}};
    bench.gpu->attend(*pool, 1, last, params, bench.rows(1, q.width), bench.rows(1, q.width));
  }
  bench.gpu->copy_block(*pool, 3, 4);
}

void pass_through(Bench& bench) {
  bench.reserve(64, {});
  const int width = 100;
  const auto weight = bench.vector(width);
  for (const int m : {1, kRows}) {
    const Rows x = bench.rows(m, width), y = bench.rows(m, width), out = bench.rows(m, width);
    bench.gpu->rms_norm(x, {weight.get(), 1e-5F}, out);
    bench.gpu->add_norm(x, y, {weight.get(), 1e-5F}, out);
    bench.gpu->gated_activation(GatedActivation::gelu_tanh, x, y, out);
    bench.gpu->add(x, y);
    bench.gpu->add_gated(x, y, bench.rows(m, 1));
    bench.gpu->soft_cap(x, 3);
    const std::vector<std::int32_t> chosen = {m - 1, 0};
    bench.gpu->gather_rows(x, chosen, bench.rows(2, width));
  }
}

void draw(Bench& bench) {
  const int vocab_size = 333;
  bench.reserve(64, {});
  const Rows logits = bench.rows(3, vocab_size);
  const std::vector<std::int32_t> history = {1, 2, 3, 1, 2, 3, 1, 2}, breakers = {7};
  const std::vector<LogitBias> bias = {{5, 1.5F}};
  const std::vector<std::uint32_t> mask((vocab_size + 31) / 32, 0xFFFF'0FFF);
  const SamplerParams greedy = {{.temperature = 0}, {}, {}, 0}, plain = {{}, {}, {}, 1};
  const SamplerParams all = {{.temperature = 0.8F,
                              .top_k = 40,
                              .top_p = 0.9F,
                              .min_p = 0.01F,
                              .typical_p = 0.95F,
                              .repetition_penalty = 1.1F,
                              .frequency_penalty = 0.1F,
                              .presence_penalty = 0.1F,
                              .dry_multiplier = 0.5F},
                             breakers,
                             bias,
                             2};
  std::vector<Candidate> candidates(20);
  std::vector<SampleRequest> requests;
  for (const SamplerParams* params : {&greedy, &plain, &all}) {
    requests.push_back({.logits_row = static_cast<int>(requests.size()), .params = params, .history = history});
    requests.back().n_output = 4;
  }
  requests.back().masks[0] = mask.data();
  requests.back().logprob = true;
  requests.back().candidates = candidates;
  std::vector<SampleResult> results(requests.size());
  bench.gpu->sample(logits, requests, results);
  const std::vector<ScoreRequest> scores = {{.logits_row = 2, .token = 332, .candidates = candidates}};
  bench.gpu->score(logits, scores, std::span(results).first(1));
  std::vector<float> row(vocab_size);
  bench.gpu->read_row(logits, 2, row);
}

// Its library is not part of imp.
bool is_of_library(std::string_view kernel) {
  return kernel.ends_with("_cublaslt");
}

int run_all() {
  Bench bench;
  int n_kernels = 0;
  for (const GemmKernel& kernel : cuda_emulated::kernels()) {
    if (is_of_library(kernel.name)) continue;
    const DType dtype = kernel.any_weight ? DType::Q5_1 : kernel.weight;
    multiply(bench, dtype, kernel.name);
    if (traits(dtype).block_elements > 1) send_to_experts(bench, dtype, kernel.name);
    ++n_kernels;
  }
  attend(bench, KvType::f16, 32);
  attend(bench, KvType::bf16, 256);
  attend(bench, KvType::q8_0, 96);
  pass_through(bench);
  draw(bench);
  for (const Launch& launch : bench.gpu->launches()) {
    if (launch.count > 0 || is_of_library(launch.name)) continue;
    std::printf("never ran: %s\n", std::string(launch.name).c_str());
    return 1;
  }
  std::printf("%d matrix kernels and every op ran on the emulated GPU\n", n_kernels);
  return 0;
}

// A thread of a block writes beyond its memory. This must end the program.
int go_astray() {
  std::vector<float> values(64);
  float* volatile const data = values.data();
  cuda_emulated::emu::run_grid({1}, {64}, 0, 1, [&] { data[threadIdx.x + 1] = 1; });
  return 0;
}

}  // namespace
}  // namespace imp

int main(int argc, char** argv) {
  return argc > 1 && std::string_view(argv[1]) == "astray" ? imp::go_astray() : imp::run_all();
}
