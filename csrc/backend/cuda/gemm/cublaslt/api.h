// The functions, constants and two structures of cuBLASLt that imp uses, as NVIDIA documents them for versions 12 and
// 13.
//
// Nothing is compiled or linked against it: the functions are found by name when the library is opened.
#pragma once

#include <cstddef>
#include <cstdint>

namespace imp::cuda::cublaslt {

struct HandleData;
struct ProductData;
struct LayoutData;
struct PreferenceData;

using Code = int;  // a cublasStatus_t
constexpr Code kSuccess = 0;

// cudaDataType_t, cublasComputeType_t and cublasOperation_t.
constexpr int kFloat32 = 0, kFloat16 = 2, kBfloat16 = 14;
constexpr int kComputeFloat32 = 68;
constexpr std::int32_t kTransposed = 1;

// Attributes, by object.
constexpr int kProductTransA = 3;
constexpr int kLayoutColumns = 3, kLayoutStride = 4;
constexpr int kPreferenceWorkspace = 1, kPreferenceReductions = 3;
constexpr int kAlgorithmSplits = 2, kAlgorithmReduction = 3;

// Split-K reduction schemes as a mask: none, and all.
constexpr std::uint32_t kNoReduction = 0, kAnyReduction = 7;

struct Algorithm {  // opaque
  std::uint64_t words[8];
};
struct Candidate {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  Code code;
  float waves;
  int reserved[4];
};

// Matrices are column-major. They begin at multiples of 256 bytes unless a preference says otherwise.
struct Api {
  Code (*create)(HandleData**);
  Code (*destroy)(HandleData*);
  const char* (*name_of)(Code);
  Code (*make_product)(ProductData**, int compute_type, int scale_type);
  Code (*free_product)(ProductData*);
  Code (*set_product)(ProductData*, int attribute, const void*, std::size_t);
  Code (*make_layout)(LayoutData**, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t stride);
  Code (*free_layout)(LayoutData*);
  Code (*set_layout)(LayoutData*, int attribute, const void*, std::size_t);
  Code (*make_preference)(PreferenceData**);
  Code (*free_preference)(PreferenceData*);
  Code (*set_preference)(PreferenceData*, int attribute, const void*, std::size_t);
  Code (*find_algorithms)(HandleData*, ProductData*, LayoutData* a, LayoutData* b, LayoutData* c, LayoutData* d,
                          PreferenceData*, int n_wanted, Candidate*, int* n_found);
  Code (*check_algorithm)(HandleData*, ProductData*, LayoutData* a, LayoutData* b, LayoutData* c, LayoutData* d,
                          const Algorithm*, Candidate*);
  Code (*get_algorithm)(const Algorithm*, int attribute, void*, std::size_t, std::size_t* n_written);
  // d = alpha · op(a) · op(b) + beta · c
  Code (*multiply)(HandleData*, ProductData*, const void* alpha, const void* a, LayoutData*, const void* b, LayoutData*,
                   const void* beta, const void* c, LayoutData*, void* d, LayoutData*, const Algorithm*,
                   void* workspace, std::size_t workspace_bytes, void* stream);
};

}  // namespace imp::cuda::cublaslt
