// Generates one token per call. The program sees each token and may choose another.
//
//	build/steps [TARGET [PROMPT [STEPS]]]
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"example.com/imp/impclient"
	imp "example.com/imp/impv1"
)

const deadline = 30 * time.Second

func main() {
	arguments := []string{"127.0.0.1:50051", "Once upon a time", "16"}
	copy(arguments, os.Args[1:])
	steps, err := strconv.Atoi(arguments[2])
	if err != nil {
		fail(err)
	}
	client, connection, err := impclient.Connect(arguments[0])
	if err != nil {
		fail(err)
	}
	defer connection.Close()
	// One deadline for all calls of the program; context.Background() in each call would set none.
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := run(ctx, client, arguments[1], steps); err != nil {
		fail(err)
	}
}

func run(ctx context.Context, client imp.InferenceServiceClient, prompt string, steps int) error {
	// Opens a session: the server evaluates the prompt once and keeps it in its cache.
	opened, err := client.Prefill(ctx, &imp.PrefillRequest{
		Input:    &imp.PrefillRequest_Text{Text: prompt},
		Sampling: &imp.SamplingOptions{Temperature: proto.Float32(0)},
	})
	if err != nil {
		return err
	}
	session, output := opened.SessionId, opened.Output
	fmt.Print(output.Text)
	for i := 1; i < steps && !output.Eos; i++ {
		if output, err = step(ctx, client, session, output.Position); err != nil {
			return err
		}
		fmt.Print(output.Text)
	}
	fmt.Println()

	// A second writer of the session is refused, because its position is out of date.
	_, err = client.Prefill(ctx, &imp.PrefillRequest{
		SessionId: session,
		Input:     &imp.PrefillRequest_TokenIds{TokenIds: &imp.TokenIds{Ids: []uint32{1}}},
		Position:  proto.Uint32(1),
	})
	if impclient.Reason(err) != "POSITION_MISMATCH" {
		return fmt.Errorf("not refused by its position: %v", err)
	}
	fmt.Fprintln(os.Stderr, impclient.Explain(err))

	// Frees the cache now. Without it the server does so when the session's time to live has passed.
	released, err := client.ReleaseSession(ctx, &imp.ReleaseSessionRequest{SessionId: session})
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "[%d tokens held, released: %t]\n", output.Position, released.Released)
	return nil
}

// step evaluates the token that was sampled last, because it sends no other, and samples the next one.
//
// The position is the number of tokens that the session holds. It makes it safe to send a step again after its reply
// was lost: the server returns the reply again and does not evaluate the token twice.
func step(ctx context.Context, client imp.InferenceServiceClient, session string, position uint32) (*imp.StepOutput, error) {
	reply, err := client.DecodeStep(ctx, &imp.DecodeStepRequest{
		Steps: []*imp.SessionStep{{SessionId: session, Position: proto.Uint32(position)}},
	})
	if err != nil {
		return nil, err
	}
	result := reply.Results[0] // one for each session of the batch
	if failure := result.GetError(); failure != nil {
		return nil, fmt.Errorf("%s: %s", failure.Reason, failure.Message)
	}
	return result.GetOutput(), nil
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "\n%s\n", impclient.Explain(err))
	os.Exit(1)
}
