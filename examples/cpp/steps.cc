// Generates one token per call. The program sees each token and may choose another.
//
//     build/steps [TARGET [PROMPT [STEPS]]]
#include <iostream>

#include "imp_client.h"

namespace {

constexpr double kDeadlineSeconds = 30;

// Makes one unary call with a deadline, and explains a failure.
template <class Request, class Response>
grpc::Status call(Stub& stub, grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                  const Request& request, Response& response) {
  grpc::ClientContext context;
  set_deadline(context, kDeadlineSeconds);
  grpc::Status status = (stub.*method)(&context, request, &response);
  if (!status.ok()) explain(std::cerr, status);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const auto stub = connect(argc > 1 ? argv[1] : "127.0.0.1:50051");
  const unsigned long steps = argc > 3 ? std::stoul(argv[3]) : 16;

  // Opens a session: the server evaluates the prompt once and keeps it in its cache.
  imp::v1::PrefillRequest prefill;
  prefill.set_text(argc > 2 ? argv[2] : "Once upon a time");
  prefill.mutable_sampling()->set_temperature(0);
  imp::v1::PrefillResponse opened;
  if (!call(*stub, &Stub::Prefill, prefill, opened).ok()) return 1;
  imp::v1::StepOutput output = opened.output();
  std::cout << output.text();

  for (unsigned long i = 1; i < steps && !output.eos(); ++i) {
    imp::v1::DecodeStepRequest request;
    // No token_ids: evaluates the token that was sampled last. `position` is the number of tokens that the session has.
    // With it, a step that is sent again after a lost reply is not evaluated twice.
    imp::v1::SessionStep& step = *request.add_steps();
    step.set_session_id(opened.session_id());
    step.set_position(output.position());
    imp::v1::DecodeStepResponse response;
    if (!call(*stub, &Stub::DecodeStep, request, response).ok()) return 1;
    const imp::v1::SessionStepResult& result = response.results(0);  // one for each session of the batch
    if (result.has_error()) {
      std::cerr << result.error().reason() << ": " << result.error().message() << '\n';
      return 1;
    }
    output = result.output();
    std::cout << output.text() << std::flush;
  }
  std::cout << std::endl;

  // A second writer of the session is refused, because its position is out of date.
  imp::v1::PrefillRequest late;
  late.set_session_id(opened.session_id());
  late.mutable_token_ids()->add_ids(1);
  late.set_position(1);
  imp::v1::PrefillResponse unused;
  call(*stub, &Stub::Prefill, late, unused);

  // Frees the cache now instead of after the session's time to live.
  imp::v1::ReleaseSessionRequest release;
  release.set_session_id(opened.session_id());
  imp::v1::ReleaseSessionResponse released;
  if (!call(*stub, &Stub::ReleaseSession, release, released).ok()) return 1;
  std::cerr << '[' << output.position() << " tokens held, released: " << std::boolalpha << released.released() << "]\n";
}
