// Generates text with imp and prints it as it comes. If the server goes away, the text goes on when it is back.
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
	request := &imp.GenerateRequest{
		Prompt: &imp.GenerateRequest_Text{Text: arguments[1]},
		// A field that is not set takes the model's default; zero means zero.
		Sampling: &imp.SamplingOptions{Temperature: proto.Float32(0)},
		Stop:     &imp.StopOptions{MaxTokens: proto.Uint32(uint32(maxTokens))},
	}
	for failures := 0; ; failures++ {
		stream, err := client.Generate(ctx, request)
		if err == nil {
			err = show(stream, request, &failures)
		}
		if err == nil {
			return
		}
		if request.Resume == nil || failures == 6 || !impclient.CanGoOn(err) {
			fail(err)
		}
		time.Sleep(100 * time.Millisecond << failures)
	}
}

// show prints the messages of a stream until it ends. The request gets what the next call needs to go on.
func show(stream imp.InferenceService_GenerateClient, request *imp.GenerateRequest, failures *int) error {
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
			if request.Resume != nil { // it goes on
				continue
			}
			fmt.Fprintf(os.Stderr, "[%s, seed %d]\n", event.Started.Model, event.Started.Seed)
			if origin := event.Started.Origin; origin != nil {
				request.Resume = &imp.Resume{Origin: origin, Sequences: []*imp.ResumedSequence{{}}}
			}
		case *imp.GenerateResponse_Chunk:
			if request.Resume != nil {
				told := request.Resume.Sequences[0]
				told.TokenIds = append(told.TokenIds, event.Chunk.TokenIds...)
			}
			*failures = 0
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
