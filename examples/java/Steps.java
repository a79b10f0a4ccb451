import imp.v1.DecodeStepRequest;
import imp.v1.InferenceServiceGrpc;
import imp.v1.InferenceServiceGrpc.InferenceServiceBlockingStub;
import imp.v1.PrefillRequest;
import imp.v1.PrefillResponse;
import imp.v1.ReleaseSessionRequest;
import imp.v1.SamplingOptions;
import imp.v1.SessionStep;
import imp.v1.SessionStepResult;
import imp.v1.StepOutput;
import imp.v1.TokenIds;
import io.grpc.ManagedChannel;
import io.grpc.StatusRuntimeException;
import java.util.concurrent.TimeUnit;

/**
 * Generates one token per call. The program sees each token and may choose another.
 *
 * <p>build/steps [TARGET [PROMPT [STEPS]]]
 */
final class Steps {
  private final ManagedChannel channel;

  private Steps(ManagedChannel channel) {
    this.channel = channel;
  }

  public static void main(String[] args) throws InterruptedException {
    String target = args.length > 0 ? args[0] : "127.0.0.1:50051";
    String prompt = args.length > 1 ? args[1] : "Once upon a time";
    int steps = args.length > 2 ? Integer.parseInt(args[2]) : 16;

    ManagedChannel channel = ImpClient.connect(target);
    int status = 0;
    try {
      new Steps(channel).run(prompt, steps);
    } catch (StatusRuntimeException failure) {
      System.err.println("\n" + ImpClient.explain(failure));
      status = 1;
    } finally {
      channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }
    System.exit(status);
  }

  private void run(String prompt, int steps) {
    // Opens a session: the server evaluates the prompt once and keeps it in its cache.
    PrefillResponse opened =
        stub().prefill(
                PrefillRequest.newBuilder()
                    .setText(prompt)
                    .setSampling(SamplingOptions.newBuilder().setTemperature(0))
                    .build());
    String session = opened.getSessionId();
    StepOutput output = opened.getOutput();
    System.out.print(output.getText());
    for (int i = 1; i < steps && !output.getEos(); i++) {
      output = step(session, output.getPosition());
      System.out.print(output.getText());
      System.out.flush();
    }
    System.out.println();

    try {
      // A second writer of the session is refused, because its position is out of date.
      stub().prefill(
              PrefillRequest.newBuilder()
                  .setSessionId(session)
                  .setTokenIds(TokenIds.newBuilder().addIds(1))
                  .setPosition(1)
                  .build());
    } catch (StatusRuntimeException failure) {
      if (!ImpClient.reason(failure).equals("POSITION_MISMATCH")) {
        throw failure;
      }
      System.err.println(ImpClient.explain(failure));
    }

    // Frees the cache now. Without it the server does so when the session's time to live has passed.
    boolean released =
        stub().releaseSession(ReleaseSessionRequest.newBuilder().setSessionId(session).build()).getReleased();
    System.err.printf("[%d tokens held, released: %b]%n", output.getPosition(), released);
  }

  /**
   * Evaluates the token that was sampled last, because it sends no other, and samples the next one.
   *
   * <p>The position is the number of tokens that the session holds. It makes it safe to send a step again after its
   * reply was lost: the server returns the reply again and does not evaluate the token twice.
   */
  private StepOutput step(String session, int position) {
    SessionStep step = SessionStep.newBuilder().setSessionId(session).setPosition(position).build();
    SessionStepResult result = // one for each session of the batch
        stub().decodeStep(DecodeStepRequest.newBuilder().addSteps(step).build()).getResults(0);
    if (result.hasError()) {
      throw new IllegalStateException(result.getError().getReason() + ": " + result.getError().getMessage());
    }
    return result.getOutput();
  }

  /** A stub for one call. The deadline counts from here, so each call needs a stub of its own. */
  private InferenceServiceBlockingStub stub() {
    return InferenceServiceGrpc.newBlockingStub(channel).withDeadlineAfter(30, TimeUnit.SECONDS);
  }
}
