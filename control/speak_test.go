package control

import (
	"bytes"
	"context"
	"io"
	"log"
	"net"
	"net/http/httptrace"
	"os"
	"runtime"
	"strings"
	"testing"
)

// eager is a connection on which an answer waits from the beginning.
type eager struct {
	net.Conn // for what nobody asks for here
	answer   io.Reader
}

func (e *eager) Read(p []byte) (int, error)  { return e.answer.Read(p) }
func (e *eager) Write(p []byte) (int, error) { return len(p), nil }
func (e *eager) Close() error                { return nil }

// A host that answers before it is asked is not heard until it was, and writes
// nothing into the program's log.
func TestAHostThatSpeaksFirstIsHeardAfterTheQuestion(t *testing.T) {
	var printed bytes.Buffer
	log.SetOutput(&printed)
	defer log.SetOutput(os.Stderr)
	client, err := NewClient(Manifest{SourceID: "s", Endpoint: "http://127.0.0.1:9"})
	if err != nil {
		t.Fatal(err)
	}
	for answer, want := range map[string]string{
		string(refusalOf(503)):       "too many requests at once; try again",
		"220 mail.example ESMTP\r\n": "control endpoint is unavailable: ",
	} {
		client.dial = func(context.Context) (net.Conn, error) { return &eager{answer: strings.NewReader(answer)}, nil }
		// Whether net/http reads before it expects anything is up to chance, which
		// is helped here.
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
			for range 100 {
				runtime.Gosched()
			}
		}})
		for range 100 {
			if err := client.Health(ctx); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Fatalf("Health: %v, want %s", err, want)
			}
		}
	}
	if printed.Len() > 0 {
		t.Errorf("printed %s", printed.String())
	}
}
