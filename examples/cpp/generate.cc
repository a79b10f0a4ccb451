// Generates text with imp and prints it as it comes.
//
//     build/generate [TARGET [PROMPT [MAX_TOKENS [DEADLINE_SECONDS]]]]
#include <iostream>

#include "imp_client.h"

int main(int argc, char** argv) {
  const std::string target = argc > 1 ? argv[1] : "127.0.0.1:50051";
  const auto stub = connect(target);

  imp::v1::GenerateRequest request;
  request.set_text(argc > 2 ? argv[2] : "Once upon a time");
  // A field that is not set takes the model's default; zero means zero.
  request.mutable_sampling()->set_temperature(0);
  request.mutable_stop()->set_max_tokens(argc > 3 ? std::stoul(argv[3]) : 64);

  grpc::ClientContext context;  // destroying it, or TryCancel(), cancels the call, and the server frees its memory
  set_deadline(context, argc > 4 ? std::stod(argv[4]) : 30);

  const auto stream = stub->Generate(&context, request);
  imp::v1::GenerateResponse response;
  while (stream->Read(&response)) {
    switch (response.event_case()) {
      case imp::v1::GenerateResponse::kStarted:
        std::cerr << '[' << response.started().model() << ", seed " << response.started().seed() << "]\n";
        break;
      case imp::v1::GenerateResponse::kChunk:
        std::cout << response.chunk().text() << std::flush;
        break;
      case imp::v1::GenerateResponse::kFinished:
        // The server holds text back while it may be the beginning of a stop string. The rest comes here.
        std::cout << response.finished().text() << std::endl;
        std::cerr << '[' << imp::v1::FinishReason_Name(response.finished().reason()) << ", "
                  << response.finished().usage().output_tokens() << " tokens]\n";
        break;
      default:  // from a newer server
        break;
    }
  }
  const grpc::Status status = stream->Finish();
  if (!status.ok()) {
    std::cerr << '\n';
    explain(std::cerr, status);
    return 1;
  }
}
