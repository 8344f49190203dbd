package speakfirst

import (
	"errors"
	"io"
	"net"
	"testing"
)

func TestAReaderThatWaitsForItsTurnEndsWithTheConnection(t *testing.T) {
	ours, theirs := net.Pipe()
	defer func() { _ = theirs.Close() }()
	conn := Conn(ours)
	read := make(chan error, 1)
	go func() {
		_, err := conn.Read(make([]byte, 1))
		read <- err
	}()
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := <-read; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Read: %v", err)
	}
}
