package control

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// Which of several wrong fields is told does not change from look to look.
func TestOfSeveralWrongFieldsTheFirstIsTold(t *testing.T) {
	for range 50 {
		var r Record
		if err := r.UnmarshalJSON([]byte("{}")); err == nil || !strings.Contains(err.Error(), "source_id") {
			t.Fatalf("record: %v", err)
		}
		var p PurgeResult
		if err := p.UnmarshalJSON([]byte("{}")); err == nil || !strings.Contains(err.Error(), "status") {
			t.Fatalf("purge: %v", err)
		}
	}
	times := `{"source_id":"s","backend":"","scope":"","thread_id":"","agent_id":"","call_id":"","kind":"","instance_id":"i","state":"ready"}`
	for range 50 {
		var r Record
		if err := r.UnmarshalJSON([]byte(times)); err == nil || !strings.Contains(err.Error(), "created_at") {
			t.Fatalf("times: %v", err)
		}
	}
}

func TestAHostThatDoesNotAnswerIsSaidToGiveNone(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	client, err := NewClient(Manifest{SourceID: "silent", Endpoint: "http://" + silent.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	client.timeout = 20 * time.Millisecond
	err = client.Health(t.Context())
	if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "control endpoint is unavailable: no answer in 20ms" {
		t.Errorf("in its own time: %v", err)
	}
	client.timeout = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err = client.Health(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "control endpoint is unavailable: no answer in time" {
		t.Errorf("in the caller's time: %v", err)
	}
}
