// What both C++ examples share: a stub for a target, a deadline, and failures in words.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <ostream>
#include <string>

#include "imp/v1/inference.grpc.pb.h"
#include "rich_status.pb.h"

using Stub = imp::v1::InferenceService::Stub;

// `target` is host:port or unix:///path. A channel connects at its first use, and again after it lost its connection.
inline std::unique_ptr<Stub> connect(const std::string& target) {
  return imp::v1::InferenceService::NewStub(grpc::CreateChannel(target, grpc::InsecureChannelCredentials()));
}

// A call without a deadline may wait forever. When the deadline passes, the server stops its work, too.
inline void set_deadline(grpc::ClientContext& context, double seconds) {
  context.set_deadline(
      std::chrono::system_clock::now() +
      std::chrono::duration_cast<std::chrono::system_clock::duration>(std::chrono::duration<double>(seconds)));
}

inline const char* code_name(grpc::StatusCode code) {
  static const char* const names[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  return code >= 0 && code <= 16 ? names[code] : "UNKNOWN";
}

// "OUT_OF_RANGE CONTEXT_TOO_LONG: …", and a line for each field that is wrong. Programs test the reason.
inline void explain(std::ostream& out, const grpc::Status& status) {
  google::rpc::Status rich;
  google::rpc::ErrorInfo info;
  google::rpc::BadRequest bad;
  rich.ParseFromString(status.error_details());
  for (const google::protobuf::Any& detail : rich.details()) {
    if (detail.Is<google::rpc::ErrorInfo>()) detail.UnpackTo(&info);
    if (detail.Is<google::rpc::BadRequest>()) detail.UnpackTo(&bad);
  }
  out << code_name(status.error_code()) << (info.reason().empty() ? "" : " ") << info.reason() << ": "
      << status.error_message() << '\n';
  for (const auto& violation : bad.field_violations()) {
    out << "  " << violation.field() << ": " << violation.description() << '\n';
  }
}
