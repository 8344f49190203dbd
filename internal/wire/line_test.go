package wire

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lines are two connected sockets.
func lines(t *testing.T) (*Line, net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	var conns [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		if conns[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		t.Cleanup(func() { _ = conns[i].Close() })
	}
	return NewLine(conns[0], time.Millisecond), conns[1]
}

func TestALineReadsWhatComesWhileItLooksAndAfterwards(t *testing.T) {
	l, other := lines(t)
	for _, wait := range []time.Duration{0, 20 * time.Millisecond, 0, 20 * time.Millisecond} {
		time.AfterFunc(wait, func() { _, _ = other.Write([]byte("abc")) })
		b := make([]byte, 8)
		if n, err := io.ReadAtLeast(l, b, 3); n != 3 || err != nil || string(b[:3]) != "abc" {
			t.Fatalf("read %q, %v", b[:n], err)
		}
	}
	if looking.Load() != 0 {
		t.Errorf("%d lines look for ever", looking.Load())
	}
}

func TestALineEndsAsItsConnectionDoes(t *testing.T) {
	l, other := lines(t)
	if err := l.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the deadline: %v", err)
	}
	if err := l.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	_ = other.Close()
	if _, err := l.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	_ = l.Close()
	if _, err := l.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("after closing: %v", err)
	}
}

func TestALineOfAnotherKindOfConnectionIsPlain(t *testing.T) {
	a, b := net.Pipe()
	go func() { _, _ = b.Write([]byte("x")); _ = b.Close() }()
	got, err := io.ReadAll(NewLine(a, time.Second))
	if string(got) != "x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
