// Kernels over quantized weights, with AArch64's dot-product instructions.
#include "backend/cpu/gemm/kernels.h"
#include "backend/cpu/gemm/quantized/product.inl"

namespace imp::cpu {

void run_q8_0_neondot(const GemmArgs& args) {
  multiply<Q8_0>(args);
}
void run_q4_0_neondot(const GemmArgs& args) {
  multiply<Q4_0>(args);
}
void run_q4_1_neondot(const GemmArgs& args) {
  multiply<Q4_1>(args);
}
void run_q5_0_neondot(const GemmArgs& args) {
  multiply<Q5_0>(args);
}
void run_q5_1_neondot(const GemmArgs& args) {
  multiply<Q5_1>(args);
}
void run_q2_k_neondot(const GemmArgs& args) {
  multiply<Q2_K>(args);
}
void run_q3_k_neondot(const GemmArgs& args) {
  multiply<Q3_K>(args);
}
void run_q4_k_neondot(const GemmArgs& args) {
  multiply<Q4_K>(args);
}
void run_q5_k_neondot(const GemmArgs& args) {
  multiply<Q5_K>(args);
}
void run_q6_k_neondot(const GemmArgs& args) {
  multiply<Q6_K>(args);
}
void run_iq4_nl_neondot(const GemmArgs& args) {
  multiply<IQ4_NL>(args);
}
void run_iq4_xs_neondot(const GemmArgs& args) {
  multiply<IQ4_XS>(args);
}

}  // namespace imp::cpu
