package supervise

import (
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/maf-sandbox/maf-sandbox-go/internal/wire"
)

// kind says what a message is.
type kind uint8

const (
	// kindConfigure (host) is the first message, with the settings.
	kindConfigure kind = iota + 1
	// kindAcquire (host) asks for a worker; kindCancel takes that back.
	kindAcquire
	kindCancel
	// kindRelease (host) asks to end a worker.
	kindRelease
	// kindEnd (host) asks to end all workers and the supervisor.
	kindEnd
	// kindGranted (supervisor) answers a call with a worker, its socket and its
	// pidfd; kindRefused with a failure.
	kindGranted
	kindRefused
	// kindGone tells that a worker that was given away has ended and how;
	// kindReleased, later, that nothing of it is left; kindTrouble that this
	// could not be reached yet, and why.
	kindGone
	kindReleased
	kindTrouble
	kindLast = kindTrouble
)

// message is what the control socket carries. The fields depend on the kind.
type message struct {
	Kind         kind
	Call, Worker uint64
	Settings     *settings
	Ready        *wire.Ready
	Failure      *StartError
	Gone         *GoneError
	Text         string
}

// settings are what a supervisor needs to know.
type settings struct {
	Role         string
	Start        wire.Start
	Limits       Limits
	StartTimeout time.Duration
}

const (
	// maxMessage bounds a message: the diagnostics of a worker with room for
	// what travels with them.
	maxMessage = maxDiagnostics + 64<<10
	// maxFiles is how many descriptors travel with a message.
	maxFiles = 2
)

// channel is one end of the control socket. One goroutine may receive, and one
// send.
type channel struct {
	conn *net.UnixConn
	buf  []byte
}

// newChannel takes over the file.
func newChannel(f *os.File) (*channel, error) {
	c, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		_ = c.Close()
		return nil, fmt.Errorf("control socket: a %T", c)
	}
	return &channel{conn: u, buf: make([]byte, maxMessage+1)}, nil
}

// send sends a message with copies of the descriptors.
func (c *channel) send(m message, files ...*os.File) error {
	b, err := wire.Encode(m)
	if err != nil {
		return err
	}
	if len(b) > maxMessage {
		return fmt.Errorf("%w: a message of %d bytes", wire.ErrProtocol, len(b))
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, 0, maxFiles)
		for _, f := range files {
			fds = append(fds, int(f.Fd()))
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err = c.conn.WriteMsgUnix(b, rights, nil)
	return err
}

// receive gives the next message and the descriptors that came with it, which
// are the caller's: as many as belong to the message, or none if this process
// could not have any more. At the end it returns io.EOF.
func (c *channel) receive() (message, []*os.File, error) {
	rights := make([]byte, unix.CmsgSpace(maxFiles*4))
	n, m, flags, _, err := c.conn.ReadMsgUnix(c.buf, rights)
	if err != nil {
		return message{}, nil, err
	}
	if n == 0 {
		return message{}, nil, io.EOF
	}
	files, err := unpack(rights[:m])
	count := len(files)
	if flags&unix.MSG_CTRUNC != 0 {
		closeAll(files)
		files, count = nil, maxFiles
	}
	if err == nil && flags&unix.MSG_TRUNC != 0 {
		err = fmt.Errorf("%w: a message that is too large", wire.ErrProtocol)
	}
	var got message
	if err == nil {
		got, err = decode(c.buf[:n], count)
	}
	if err != nil {
		closeAll(files)
		return message{}, nil, err
	}
	return got, files, nil
}

// decode reads a message that came with so many descriptors.
func decode(b []byte, files int) (m message, err error) {
	if len(b) > maxMessage {
		return m, fmt.Errorf("%w: a message of %d bytes", wire.ErrProtocol, len(b))
	}
	if err := wire.Decode(b, &m); err != nil {
		return m, err
	}
	want, complete := 0, m.Kind >= kindConfigure && m.Kind <= kindLast
	switch m.Kind {
	case kindConfigure:
		complete = m.Settings != nil
	case kindGranted:
		want, complete = maxFiles, m.Ready != nil
	case kindRefused:
		complete = m.Failure != nil
	case kindGone:
		complete = m.Gone != nil
	}
	if !complete || files != want {
		return m, fmt.Errorf("%w: a message of kind %d with %d descriptors", wire.ErrProtocol, m.Kind, files)
	}
	return m, nil
}

func unpack(control []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", wire.ErrProtocol, err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			closeAll(files)
			return nil, fmt.Errorf("%w: %w", wire.ErrProtocol, err)
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// pair makes two connected sockets of a type.
func pair(kind int) (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs"), nil
}
