package wire

import (
	"bytes"
	"encoding/binary"
	"net"
)

// copied is up to which size in bytes a payload is copied into its frame, which is
// then one Write of a buffer that is used again.
const copied = 16 << 10

// The end of every encoded Answer, from its payload on: a map of six, the payload
// last but one (RFC 8949, 4.2.1: keys in the order of their encoding).
var (
	answerNone = []byte{0x40} // a byte string of no bytes
	answerTail = []byte("\x67Unknown")
)

// byteString is how CBOR announces n bytes.
func byteString(n int) []byte {
	const major = 2 << 5
	switch {
	case n < 24:
		return []byte{major | byte(n)}
	case n <= 0xff:
		return []byte{major | 24, byte(n)}
	case n <= 0xffff:
		return binary.BigEndian.AppendUint16([]byte{major | 25}, uint16(n))
	}
	return binary.BigEndian.AppendUint32([]byte{major | 26}, uint32(n)) //nolint:gosec // the caller has bounded it
}

// WriteAnswer sends an Answer as a KindAnswer of the call, as Encode and Write
// would, but without a copy of a large payload: it can be as large as what a
// program may post, and there can be one for every sandbox.
func (w *Writer) WriteAnswer(call uint32, a Answer) error {
	if len(a.Payload) <= copied {
		b, err := Encode(a)
		if err != nil {
			return err
		}
		return w.Write(Frame{Kind: KindAnswer, Call: call, Payload: b})
	}
	payload := a.Payload
	if err := a.check(); err != nil {
		return err
	}
	a.Payload = []byte{}
	b, err := Encode(a)
	if err != nil {
		return err
	}
	// The tail is the name of the last field and its value, one byte.
	at := len(b) - len(answerTail) - 1
	head, ours := bytes.CutSuffix(b[:max(at, 0)], answerNone)
	if !ours || !bytes.HasPrefix(b[at:], answerTail) {
		return violation("an answer that ends with %.16x", b[max(at, 0):])
	}
	announced := byteString(len(payload))
	size := len(head) + len(announced) + len(payload) + len(b) - at
	le := binary.LittleEndian
	start := le.AppendUint32(make([]byte, 0, headerSize+len(head)+len(announced)), uint32(size)) //nolint:gosec // checked above
	start = le.AppendUint32(le.AppendUint32(start, uint32(KindAnswer)), call)
	parts := net.Buffers{append(append(start, head...), announced...), payload, b[at:]}
	_, err = parts.WriteTo(w.w)
	return err
}
