package mcp

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
)

func TestTheEndOfTheInputWaitsForTheFirstUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ready := make(chan struct{})
		in := held{strings.NewReader("request"), ready}
		p := make([]byte, 100)
		if n, err := in.Read(p); string(p[:n]) != "request" || err != nil {
			t.Fatalf("%q, %v", p[:n], err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := in.Read(p)
			ended <- err
		}()
		synctest.Wait()
		select {
		case err := <-ended:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
		close(ready)
		if err := <-ended; !errors.Is(err, io.EOF) {
			t.Errorf("error %v", err)
		}
	})
}
