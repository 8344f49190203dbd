package wire

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestWhatAGateKeepsOutIsReadPast(t *testing.T) {
	ask := func(id uint32, n int) Frame {
		b, err := Encode(Ask{ID: id, Name: "http", Payload: make([]byte, n)})
		if err != nil {
			t.Fatal(err)
		}
		return Frame{Kind: KindAsk, Call: 1, Payload: b}
	}
	var b bytes.Buffer
	w := NewWriter(&b)
	frames := []Frame{ask(1, 10), ask(70000, 1<<20), ask(3, 2<<20), {Kind: KindStdout, Call: 1, Payload: make([]byte, 3<<20)}, ask(^uint32(0), MaxAskBytes)}
	for _, f := range frames {
		if err := w.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	r := NewReader(iotest.HalfReader(&b), MaxPayload)
	var asked []int
	r.Gate(KindAsk, 1<<10, func(n int) bool { asked = append(asked, n); return len(asked) == 2 })
	for i, want := range []struct {
		cut bool
		id  uint32
	}{{false, 1}, {true, 70000}, {false, 3}, {false, 0}, {true, ^uint32(0)}} {
		f, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if f.Cut != want.cut || f.Kind != frames[i].Kind || !bytes.HasPrefix(frames[i].Payload, f.Payload) || !f.Cut && len(f.Payload) != len(frames[i].Payload) {
			t.Errorf("frame %d: cut %v, %d bytes", i, f.Cut, len(f.Payload))
		}
		if f.Cut && len(f.Payload) != MaxHead || cap(r.buf) > 8<<20 && f.Kind == KindAsk {
			t.Errorf("frame %d: %d bytes of it, and a buffer of %d", i, len(f.Payload), cap(r.buf))
		}
		if f.Kind != KindAsk {
			continue
		}
		if id, err := AskID(f.Payload); err != nil || id != want.id {
			t.Errorf("frame %d: number %d, %v", i, id, err)
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) || len(asked) != 3 {
		t.Errorf("at the end: %v; asked for %v", err, asked)
	}
}

func TestAFrameThatEndsWhileItIsReadPastIsCutShort(t *testing.T) {
	for _, there := range []int{10, MaxHead, MaxHead + 10} {
		r := NewReader(bytes.NewReader(frameBytes(64<<10, uint32(KindAsk), 1, make([]byte, there))), MaxPayload)
		r.Gate(KindAsk, 0, func(int) bool { return false })
		if _, err := r.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("after %d bytes: %v", there, err)
		}
	}
}

func FuzzAskID(f *testing.F) {
	for _, id := range []uint32{0, 23, 24, 1 << 20, ^uint32(0)} {
		b, err := Encode(Ask{ID: id, Name: "n", Payload: []byte("p")})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("\xa3\x62ID\x1b\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Add([]byte("\xa3\x62ID\x9f\x9f\x9f"))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := AskID(b)
		if err != nil && !errors.Is(err, ErrProtocol) {
			t.Fatal(err)
		}
		var a Ask
		// What is an Ask as Encode makes it has the number that is found in it.
		if Decode(b, &a) == nil && err == nil && id != a.ID {
			t.Fatalf("%d in an ask of number %d", id, a.ID)
		}
	})
}
