import imp.v1.GenerationFinished;
import imp.v1.GenerateRequest;
import imp.v1.GenerateResponse;
import imp.v1.InferenceServiceGrpc;
import imp.v1.SamplingOptions;
import imp.v1.StopOptions;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import java.util.Iterator;
import java.util.concurrent.TimeUnit;

/**
 * Generates text with imp and prints it as it comes.
 *
 * <p>build/generate [TARGET [PROMPT [MAX_TOKENS [DEADLINE_SECONDS]]]]
 */
final class Generate {
  public static void main(String[] args) throws InterruptedException {
    String target = args.length > 0 ? args[0] : "127.0.0.1:50051";
    String prompt = args.length > 1 ? args[1] : "Once upon a time";
    int maxTokens = args.length > 2 ? Integer.parseUnsignedInt(args[2]) : 64;
    double deadline = args.length > 3 ? Double.parseDouble(args[3]) : 30;

    GenerateRequest request =
        GenerateRequest.newBuilder()
            .setText(prompt)
            // A field that is not set takes the model's default; zero means zero.
            .setSampling(SamplingOptions.newBuilder().setTemperature(0))
            .setStop(StopOptions.newBuilder().setMaxTokens(maxTokens))
            .build();

    ManagedChannel channel = ImpClient.connect(target);
    int status = 0;
    try {
      // A call without a deadline may wait forever. When the deadline passes, the server stops its work, too.
      Iterator<GenerateResponse> stream =
          InferenceServiceGrpc.newBlockingStub(channel)
              .withDeadlineAfter((long) (deadline * 1000), TimeUnit.MILLISECONDS)
              .generate(request);
      while (stream.hasNext()) {
        show(stream.next());
      }
    } catch (StatusRuntimeException failure) {
      System.err.println("\n" + ImpClient.explain(failure));
      status = 1;
    } finally {
      // Ends the calls that still run, and the server frees their memory.
      channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }
    System.exit(status);
  }

  private static void show(GenerateResponse response) {
    switch (response.getEventCase()) {
      case STARTED -> {
        String seed = Long.toUnsignedString(response.getStarted().getSeed());
        System.err.printf("[%s, seed %s]%n", response.getStarted().getModel(), seed);
      }
      case CHUNK -> {
        System.out.print(response.getChunk().getText());
        System.out.flush();
      }
      case FINISHED -> {
        GenerationFinished finished = response.getFinished();
        // The server holds text back while it may be the beginning of a stop string. The rest comes here.
        System.out.println(finished.getText());
        System.err.printf("[%s, %d tokens]%n", finished.getReason(), finished.getUsage().getOutputTokens());
      }
      default -> {} // from a newer server
    }
  }
}
