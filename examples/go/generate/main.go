// Generates text with imp and prints it as it comes.
//
//	build/generate [TARGET [PROMPT [MAX_TOKENS [DEADLINE_SECONDS]]]]
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"google.golang.org/protobuf/proto"

	"example.com/imp/impclient"
	imp "example.com/imp/impv1"
)

func main() {
	arguments := []string{"127.0.0.1:50051", "Once upon a time", "64", "30"}
	copy(arguments, os.Args[1:])
	maxTokens, err := strconv.ParseUint(arguments[2], 10, 32)
	if err != nil {
		fail(err)
	}
	deadline, err := time.ParseDuration(arguments[3] + "s")
	if err != nil {
		fail(err)
	}

	client, connection, err := impclient.Connect(arguments[0])
	if err != nil {
		fail(err)
	}
	defer connection.Close()

	// A call without a deadline may wait forever. When the deadline passes, the server stops its work, too.
	// Calling cancel earlier ends the call, and the server frees its memory.
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	stream, err := client.Generate(ctx, &imp.GenerateRequest{
		Prompt: &imp.GenerateRequest_Text{Text: arguments[1]},
		// A field that is not set takes the model's default; zero means zero.
		Sampling: &imp.SamplingOptions{Temperature: proto.Float32(0)},
		Stop:     &imp.StopOptions{MaxTokens: proto.Uint32(uint32(maxTokens))},
	})
	if err != nil {
		fail(err)
	}
	if err := show(stream); err != nil {
		fail(err)
	}
}

// show prints the messages of a stream until it ends.
func show(stream imp.InferenceService_GenerateClient) error {
	for {
		response, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		switch event := response.Event.(type) { // newer servers may send other events; they are ignored
		case *imp.GenerateResponse_Started:
			fmt.Fprintf(os.Stderr, "[%s, seed %d]\n", event.Started.Model, event.Started.Seed)
		case *imp.GenerateResponse_Chunk:
			fmt.Print(event.Chunk.Text)
		case *imp.GenerateResponse_Finished:
			// The server holds text back while it may be the beginning of a stop string. The rest comes here.
			fmt.Println(event.Finished.Text)
			fmt.Fprintf(os.Stderr, "[%s, %d tokens]\n", event.Finished.Reason, event.Finished.Usage.GetOutputTokens())
		}
	}
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "\n%s\n", impclient.Explain(err))
	os.Exit(1)
}
