package wire

import (
	"bytes"
	"errors"
	"io"
)

// MaxHead is how much of a frame is kept that is read past, in bytes: the
// beginning of an Ask, its number and name included.
const MaxHead = 512

// gate is asked before something large is read.
type gate struct {
	free int
	room func(n int) bool
}

// Gate has room asked for the payloads of a kind that are larger than free bytes,
// before they are read. One for which there is none is read past: its frame is
// Cut, with the first MaxHead bytes. One that was let in is forgotten by the
// reader, so that the memory is the caller's alone. room is called by Next; who
// gave it takes it back when the payload is of no more use, or never came.
func (r *Reader) Gate(kind Kind, free int, room func(n int) bool) {
	if r.gates == nil {
		r.gates = map[Kind]gate{}
	}
	r.gates[kind] = gate{max(free, MaxHead), room}
}

// pass reads a payload of n bytes that a gate may keep out.
func (r *Reader) pass(f *Frame, g gate, n int) error {
	if n <= g.free {
		return r.take(f, n)
	}
	if g.room(n) {
		err := r.take(f, n)
		r.buf = nil
		return err
	}
	f.Cut = true
	if err := r.take(f, MaxHead); err != nil {
		return err
	}
	_, err := io.CopyN(io.Discard, r.r, int64(n-MaxHead))
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// askHead is how every Ask begins: a map of three, the number first (RFC 8949,
// 4.2.1: keys in the order of their encoding).
var askHead = []byte{0xa3, 0x62, 'I', 'D'}

// AskID finds the number of an Ask of which only the beginning is there. It
// returns ErrProtocol for what is none.
func AskID(head []byte) (id uint32, err error) {
	rest, ours := bytes.CutPrefix(head, askHead)
	if !ours {
		return 0, violation("an ask that begins with %.8x", head)
	}
	if _, err := decoding.UnmarshalFirst(rest, &id); err != nil {
		return 0, violation("the number of an ask: %v", err)
	}
	return id, nil
}
