package control

import (
	"context"
	"errors"
	"math"
	"net/http"
	"testing"
	"time"
)

func TestOperationsThatNeverEndAreBounded(t *testing.T) {
	const most = 3
	o := newOperations(most)
	for range most {
		if err := o.begin(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := run(o, time.Hour, func(context.Context) (int, error) { return 1, nil }); !errors.Is(err, errTooMany) {
		t.Errorf("one more: %v", err)
	}
	for range most {
		o.done()
	}
	if n, err := run(o, time.Hour, func(context.Context) (int, error) { return 1, nil }); n != 1 || err != nil {
		t.Errorf("afterwards: %d, %v", n, err)
	}
	o.close()
	if _, err := run(o, time.Hour, func(context.Context) (int, error) { return 1, nil }); !errors.Is(err, errClosing) {
		t.Errorf("after the close: %v", err)
	}
}

// Whoever wants to wait for ever says so with the largest number there is.
func TestTheLongestTimeIsATimeToo(t *testing.T) {
	config := ServerConfig{Control: NewMemory(DemoRecords("s", time.Now())...), SourceID: "s", Directory: folder(t), DisposeTimeout: math.MaxInt64}
	server, err := NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	client, err := NewClient(server.life.manifest)
	if err != nil {
		t.Fatal(err)
	}
	// Without a time of the client's own the server's counts.
	if _, err := client.ask(t.Context(), http.MethodGet, pathInventory, hang); err != nil {
		t.Error(err)
	}
	for _, c := range []Control{client, NewComposite([]Member{{"s", client}}, nil)} {
		records, err := c.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if result, err := c.Dispose(t.Context(), records[0].InstanceID, math.MaxInt64); err != nil || result.Status != Disposed {
			t.Errorf("Dispose = %+v, %v", result, err)
		}
		if result, err := c.Purge(t.Context(), records[0].Scope, records[0].ThreadID, math.MaxInt64); err != nil || result.Status != Purged {
			t.Errorf("Purge = %+v, %v", result, err)
		}
	}
}

func TestAnOperationThatIsLateHasNoResult(t *testing.T) {
	o := newOperations(2)
	release := make(chan struct{})
	late := func(name string, f func(context.Context) (int, error)) {
		t.Helper()
		if n, err := run(o, time.Millisecond, f); n != 0 || !errors.Is(err, errLate) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	late("obeys", func(ctx context.Context) (int, error) { <-ctx.Done(); return 1, ctx.Err() })
	settle(o) // its caller has the answer a moment earlier
	late("succeeds when it is told to end", func(ctx context.Context) (int, error) { <-ctx.Done(); return 1, nil })
	settle(o)
	late("does not end", func(context.Context) (int, error) { <-release; return 1, nil })
	if n := o.unsettled(); n != 1 {
		t.Errorf("%d are unsettled", n)
	}
	close(release)
	settle(o)
	if n := o.unsettled(); n != 0 {
		t.Errorf("%d are unsettled", n)
	}
}

// settle waits until no operation runs.
func settle(o *operations) {
	o.mu.Lock()
	settled := o.settled
	o.mu.Unlock()
	<-settled
}
