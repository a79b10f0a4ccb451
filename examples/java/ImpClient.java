import com.google.protobuf.Any;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.rpc.BadRequest;
import com.google.rpc.ErrorInfo;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.StatusProto;
import java.util.List;
import java.util.Objects;

/** What both Java examples share: a connection to a server, and failures in words. */
final class ImpClient {
  private ImpClient() {}

  /** Returns a channel to HOST:PORT. It connects when it is first used, and again after it lost its connection. */
  static ManagedChannel connect(String target) {
    return ManagedChannelBuilder.forTarget(target).usePlaintext().build();
  }

  /** Returns the reason, which programs test, such as "CONTEXT_TOO_LONG"; empty if the failure is not one of imp's. */
  static String reason(StatusRuntimeException failure) {
    String reason = "";
    for (Any detail : details(failure)) {
      if (detail.is(ErrorInfo.class)) {
        reason = unpack(detail, ErrorInfo.class).getReason();
      }
    }
    return reason;
  }

  /** Returns "OUT_OF_RANGE CONTEXT_TOO_LONG: ...", and a line for each field that is wrong. */
  static String explain(StatusRuntimeException failure) {
    Status status = failure.getStatus();
    String reason = reason(failure);
    StringBuilder text = new StringBuilder(status.getCode().name());
    text.append(reason.isEmpty() ? "" : " " + reason).append(": ");
    text.append(Objects.toString(status.getDescription(), ""));
    for (Any detail : details(failure)) {
      if (detail.is(BadRequest.class)) {
        for (BadRequest.FieldViolation violation : unpack(detail, BadRequest.class).getFieldViolationsList()) {
          text.append("\n  ").append(violation.getField()).append(": ").append(violation.getDescription());
        }
      }
    }
    return text.toString();
  }

  private static List<Any> details(StatusRuntimeException failure) {
    com.google.rpc.Status rich = StatusProto.fromThrowable(failure);
    return rich == null ? List.of() : rich.getDetailsList();
  }

  private static <T extends com.google.protobuf.Message> T unpack(Any detail, Class<T> type) {
    try {
      return detail.unpack(type);
    } catch (InvalidProtocolBufferException error) {
      throw new IllegalStateException("The server sent a damaged " + type.getSimpleName(), error);
    }
  }
}
