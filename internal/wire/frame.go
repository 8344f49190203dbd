package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Kind says what a frame is.
type Kind uint32

// The kinds of frames. Call numbers are chosen by the host; what a worker sends
// for a call carries its number.
const (
	// KindStart (supervisor) is the first frame to a worker: a Start.
	KindStart Kind = iota + 1
	// KindRun (host) asks to run a program; its payload is a Run.
	KindRun
	// KindReset (host) asks to put the guest back to its template.
	KindReset
	// KindInterrupt (host, on the side line) cancels the call with the frame's
	// number.
	KindInterrupt
	// KindReady (worker) answers the start: a Ready. A worker that cannot start
	// answers KindDone for call 0.
	KindReady
	// KindStdout and KindStderr (worker) carry output as it arrives.
	KindStdout
	KindStderr
	// KindDone (worker) ends a call; its payload is a Done.
	KindDone
	// KindAsk (worker) carries what the program of a call asks of the host: an
	// Ask. The host answers every one, once, with a KindAnswer.
	KindAsk
	// KindAnswer (host, on the side line) answers an Ask: an Answer. It may come after the end of the
	// call, whose number it carries all the same.
	KindAnswer
	// KindWithdraw (worker) says that nobody waits for an answer any more: a
	// Withdraw. The host ends what it does for it and answers, whatever that is; it
	// may have answered already. All that a call has asked is withdrawn when it is
	// done.
	KindWithdraw
	kindEnd
)

const (
	headerSize = 12
	// MaxPayload bounds every payload in bytes: the largest program and the most
	// arguments, with room for what travels with them.
	MaxPayload = 10<<20 + 192<<10
	// MaxOutputPayload is the largest piece of output in one frame, in bytes.
	MaxOutputPayload = 64 << 10
)

// ErrProtocol is returned when the other side broke the rules of this package.
// The connection is of no further use.
var ErrProtocol = errors.New("wire protocol violated")

func violation(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, a...))
}

// Frame is one message. The payload belongs to the reader that returned it and
// is valid until its next call.
type Frame struct {
	Kind    Kind
	Call    uint32
	Payload []byte
	// Cut: only the beginning of the payload is there (Reader.Gate).
	Cut bool
}

// Reader reads frames from a stream.
type Reader struct {
	r    io.Reader
	max  int
	head [headerSize]byte
	buf  []byte
	// more are the kinds that may be larger than max.
	more  map[Kind]int
	gates map[Kind]gate
}

// Allow lets frames of a kind have payloads of up to limit bytes, at most
// MaxPayload.
func (r *Reader) Allow(kind Kind, limit int) {
	if r.more == nil {
		r.more = map[Kind]int{}
	}
	r.more[kind] = min(limit, MaxPayload)
}

// NewReader reads frames with payloads of at most limit bytes from r; limit is
// not larger than MaxPayload.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{r: r, max: min(limit, MaxPayload)}
}

// Next reads a frame. It returns io.EOF when the stream ends between two
// frames, io.ErrUnexpectedEOF inside one, ErrProtocol for what is no frame.
func (r *Reader) Next() (Frame, error) {
	if _, err := io.ReadFull(r.r, r.head[:]); err != nil {
		return Frame{}, err
	}
	n := binary.LittleEndian.Uint32(r.head[:])
	f := Frame{Kind: Kind(binary.LittleEndian.Uint32(r.head[4:])), Call: binary.LittleEndian.Uint32(r.head[8:])}
	if f.Kind == 0 || f.Kind >= kindEnd {
		return Frame{}, violation("a frame of kind %d", uint32(f.Kind))
	}
	limit := max(r.max, r.more[f.Kind])
	if int64(n) > int64(limit) {
		return Frame{}, violation("a payload of %d bytes; at most %d are allowed", n, limit)
	}
	// One large frame should not be remembered for ever.
	if cap(r.buf) > 2*MaxOutputPayload && n <= MaxOutputPayload {
		r.buf = nil
	}
	var err error
	if g, gated := r.gates[f.Kind]; gated {
		err = r.pass(&f, g, int(n))
	} else {
		err = r.take(&f, int(n))
	}
	if err != nil {
		return Frame{}, err
	}
	return f, nil
}

// take reads a payload of n bytes.
func (r *Reader) take(f *Frame, n int) error {
	err := r.fill(n)
	f.Payload = r.buf
	return err
}

// fill reads a payload. The buffer grows with what has arrived, so that a
// length alone costs nothing.
func (r *Reader) fill(n int) error {
	const piece = 64 << 10
	r.buf = r.buf[:0]
	for len(r.buf) < n {
		at := len(r.buf)
		want := min(n-at, max(piece, at))
		if cap(r.buf) < at+want {
			grown := make([]byte, at, at+want)
			copy(grown, r.buf)
			r.buf = grown
		}
		r.buf = r.buf[:at+want]
		if _, err := io.ReadFull(r.r, r.buf[at:]); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// Writer writes frames to a stream. It is not safe for concurrent use.
type Writer struct {
	w   io.Writer
	buf []byte
}

// NewWriter writes frames to w, each with one call of Write.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write sends a frame. A payload beyond MaxPayload is refused.
func (w *Writer) Write(f Frame) error {
	if len(f.Payload) > MaxPayload {
		return violation("a payload of %d bytes was to be sent; at most %d are allowed", len(f.Payload), MaxPayload)
	}
	le := binary.LittleEndian
	b := le.AppendUint32(w.buf[:0], uint32(len(f.Payload)))
	b = le.AppendUint32(le.AppendUint32(b, uint32(f.Kind)), f.Call)
	b = append(b, f.Payload...)
	_, err := w.w.Write(b)
	// One large program should not be remembered for ever.
	if cap(b) <= 2*MaxOutputPayload {
		w.buf = b
	}
	return err
}
