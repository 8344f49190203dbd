package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func frameBytes(n, kind, call uint32, payload []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, n)
	b = binary.LittleEndian.AppendUint32(b, kind)
	return append(binary.LittleEndian.AppendUint32(b, call), payload...)
}

func TestFramesArriveAsTheyWereSent(t *testing.T) {
	frames := []Frame{
		{Kind: KindRun, Call: 1, Payload: []byte("payload")}, {Kind: KindReset, Call: 2, Payload: []byte{}},
		{Kind: KindStdout, Call: 1, Payload: bytes.Repeat([]byte{7}, 300<<10)},
		{Kind: KindDone, Call: ^uint32(0), Payload: make([]byte, MaxPayload)},
	}
	var b bytes.Buffer
	w := NewWriter(&b)
	for _, f := range frames {
		if err := w.Write(f); err != nil {
			t.Fatal(err)
		}
	}
	r := NewReader(iotest.HalfReader(&b), MaxPayload)
	for _, want := range frames {
		got, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if got.Kind != want.Kind || got.Call != want.Call || !bytes.Equal(got.Payload, want.Payload) {
			t.Errorf("frame of kind %d, call %d, %d bytes; want %d, %d, %d", got.Kind, got.Call, len(got.Payload), want.Kind, want.Call, len(want.Payload))
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if err := w.Write(Frame{Kind: KindRun, Call: 1, Payload: make([]byte, MaxPayload+1)}); !errors.Is(err, ErrProtocol) {
		t.Errorf("a payload that is too large was sent: %v", err)
	}
}

func TestBrokenFramesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		b    []byte
		want error
	}{
		"no kind":            {frameBytes(0, 0, 0, nil), ErrProtocol},
		"unknown kind":       {frameBytes(0, uint32(kindEnd), 0, nil), ErrProtocol},
		"beyond the limit":   {frameBytes(101, uint32(KindRun), 0, make([]byte, 101)), ErrProtocol},
		"a huge length":      {frameBytes(^uint32(0), uint32(KindRun), 0, nil), ErrProtocol},
		"cut in the header":  {frameBytes(0, uint32(KindRun), 0, nil)[:5], io.ErrUnexpectedEOF},
		"cut in the payload": {frameBytes(10, uint32(KindRun), 0, make([]byte, 9)), io.ErrUnexpectedEOF},
		"no payload at all":  {frameBytes(10, uint32(KindRun), 0, nil), io.ErrUnexpectedEOF},
	} {
		if _, err := NewReader(bytes.NewReader(c.b), 100).Next(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestALengthAloneCostsNothing(t *testing.T) {
	b := frameBytes(MaxPayload, uint32(KindRun), 0, []byte("x"))
	r := NewReader(bytes.NewReader(b), MaxPayload)
	if _, err := r.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if cap(r.buf) > 64<<10 {
		t.Errorf("%d bytes were allocated for one", cap(r.buf))
	}
}

func TestMessagesSurviveTheTrip(t *testing.T) {
	run := Run{Code: []byte("print(1)\x00\xff"), Filename: "f.py", Argv: []byte("\x00f.py\x00\xff"), Timeout: time.Second, MaxOutput: 5, Echo: true, Host: true}
	done := Done{ExitCode: -1, Exited: true, Value: "ä", Generation: "g", Kind: "timeout", Message: "m", Usable: true, Duration: 7}
	ask := Ask{ID: ^uint32(0), Name: "http", Payload: []byte("\xfe")}
	answer := Answer{ID: 1, Payload: []byte("\xff"), Failed: true, Failure: "no", NoRoom: true, Unknown: true}
	for _, c := range []struct{ in, out any }{
		{&run, new(Run)}, {&done, new(Done)}, {&ask, new(Ask)}, {&answer, new(Answer)}, {&Withdraw{ID: 3}, new(Withdraw)},
	} {
		b, err := Encode(c.in)
		if err != nil {
			t.Fatal(err)
		}
		if err := Decode(b, c.out); err != nil {
			t.Fatal(err)
		}
		clear(b) // as the reader does with its next frame
		if d := cmp.Diff(c.in, c.out); d != "" {
			t.Error(d)
		}
	}
}

func TestForeignMessagesAreRefused(t *testing.T) {
	for name, b := range map[string][]byte{
		"empty":           {},
		"not a map":       {0x01},
		"unknown field":   {0xa1, 0x61, 'x', 0x01},
		"duplicate field": {0xa2, 0x64, 'C', 'o', 'd', 'e', 0x40, 0x64, 'C', 'o', 'd', 'e', 0x40},
		"indefinite map":  {0xbf, 0xff},
		"a tag":           {0xc1, 0xa0},
		"trailing bytes":  {0xa0, 0x00},
		"wrong type":      {0xa1, 0x64, 'E', 'c', 'h', 'o', 0x01},
		"invalid UTF-8":   {0xa1, 0x68, 'F', 'i', 'l', 'e', 'n', 'a', 'm', 'e', 0x61, 0xff},
	} {
		if err := Decode(b, new(Run)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAsksAndAnswersAreBounded(t *testing.T) {
	for _, v := range []any{
		Ask{ID: ^uint32(0), Name: strings.Repeat("n", MaxAskName), Payload: make([]byte, MaxAskBytes)},
		Answer{ID: ^uint32(0), Payload: make([]byte, MaxAskBytes), Failure: strings.Repeat("f", MaxFailure)},
	} {
		if b, err := Encode(v); err != nil || len(b) > MaxPayload {
			t.Errorf("%T at its bounds does not fit a frame: %d bytes, %v", v, len(b), err)
		}
	}
	for name, c := range map[string]struct{ in, out any }{
		"a long name":    {Ask{Name: strings.Repeat("n", MaxAskName+1)}, new(Ask)},
		"a large ask":    {Ask{Payload: make([]byte, MaxAskBytes+1)}, new(Ask)},
		"a large answer": {Answer{Payload: make([]byte, MaxAskBytes+1)}, new(Answer)},
		"a long failure": {Answer{Failure: strings.Repeat("f", MaxFailure+1)}, new(Answer)},
	} {
		b, err := Encode(c.in)
		if err != nil {
			t.Fatal(err)
		}
		if err := Decode(b, c.out); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(frameBytes(3, uint32(KindRun), 1, []byte("abc")))
	f.Add(frameBytes(70000, uint32(KindStdout), 1, make([]byte, 70000)))
	f.Add(frameBytes(^uint32(0), 1, 1, nil))
	for kind, v := range map[Kind]any{
		KindAsk: Ask{ID: 1, Name: "http", Payload: []byte("p")}, KindWithdraw: Withdraw{ID: 1},
		KindAnswer: Answer{ID: 1, Payload: []byte("p"), Failed: true, Failure: "f", Unknown: true},
	} {
		b, err := Encode(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frameBytes(uint32(len(b)), uint32(kind), 1, b))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 128 << 10
		r := NewReader(bytes.NewReader(b), limit)
		for read := 0; ; {
			fr, err := r.Next()
			if err != nil {
				return
			}
			if read += headerSize + len(fr.Payload); read > len(b) || len(fr.Payload) > limit {
				t.Fatalf("%d bytes were read of %d", read, len(b))
			}
			for _, v := range []any{new(Run), new(Done), new(Ready), new(Ask), new(Answer), new(Withdraw)} {
				if Decode(fr.Payload, v) == nil {
					if _, err := Encode(v); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	})
}
