package control

import (
	"context"
	"errors"
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
