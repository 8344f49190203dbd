package console

import (
	"testing"
	"time"

	"github.com/creack/pty"
)

// After a panic Bubble Tea's reader still reads, and may take what the console was
// told of.
func TestAReadOfWhatSomebodyElseHasTakenDoesNotWait(t *testing.T) {
	outside, side, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = outside.Close(), side.Close() }()
	c := &terminal{in: int(side.Fd()), out: int(side.Fd())}
	if err := c.take(); err != nil {
		t.Fatal(err)
	}
	if err := c.readNoWait(); err != nil {
		t.Fatal(err)
	}
	reads := make(chan int, 1)
	go func() { n, _ := c.readByte(); reads <- n }()
	select {
	case n := <-reads:
		if n != 0 {
			t.Errorf("read %d bytes of none", n)
		}
	case <-time.After(10 * time.Second):
		t.Error("it waits for ever")
		_, _ = outside.WriteString("x")
	}
	if err := c.giveBack(); err != nil {
		t.Error(err)
	}
}
