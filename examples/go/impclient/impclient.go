// Package impclient has what both Go examples share: a connection to a server, and failures in words.
package impclient

import (
	"fmt"
	"io"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	imp "example.com/imp/impv1"
)

// Connect makes a client for a target: host:port or unix:///path. Closing the connection ends its calls.
//
// Since grpc-go 1.63, write grpc.NewClient and grpc.WithTransportCredentials(insecure.NewCredentials()).
func Connect(target string) (imp.InferenceServiceClient, io.Closer, error) {
	connection, err := grpc.Dial(target, grpc.WithInsecure())
	if err != nil {
		return nil, nil, err
	}
	return imp.NewInferenceServiceClient(connection), connection, nil
}

// Reason is the word that programs test, such as "CONTEXT_TOO_LONG". It is empty if err does not come from imp.
func Reason(err error) string {
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			return info.Reason
		}
	}
	return ""
}

// CanGoOn says whether the server went away, so that it, when it is back, or another one goes on with the stream.
func CanGoOn(err error) bool {
	reason := Reason(err)
	return status.Code(err) == codes.Unavailable || reason == "DEVICE_FAULT" || reason == "QUEUE_FULL"
}

// Explain says "OUT_OF_RANGE CONTEXT_TOO_LONG: ...", and has a line for each field that is wrong.
func Explain(err error) string {
	failure := status.Convert(err)
	head := code.Code(failure.Code()).String()
	if reason := Reason(err); reason != "" {
		head += " " + reason
	}
	lines := []string{head + ": " + failure.Message()}
	for _, detail := range failure.Details() {
		if bad, ok := detail.(*errdetails.BadRequest); ok {
			for _, violation := range bad.FieldViolations {
				lines = append(lines, fmt.Sprintf("  %s: %s", violation.Field, violation.Description))
			}
		}
	}
	return strings.Join(lines, "\n")
}
