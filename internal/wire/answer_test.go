package wire

import (
	"bytes"
	"reflect"
	"runtime"
	"testing"
)

func TestAnAnswerIsSentAsItWouldBeEncoded(t *testing.T) {
	for _, size := range []int{0, 1, 23, 24, 255, 256, copied, copied + 1, 1<<16 - 1, 1 << 16, MaxAskBytes} {
		for _, a := range []Answer{{ID: 7}, {ID: 1 << 30, Unknown: true}, {Failed: true, Failure: "no room", NoRoom: true}} {
			a.Payload = bytes.Repeat([]byte{0x67}, size)
			var got, want bytes.Buffer
			if err := NewWriter(&got).WriteAnswer(9, a); err != nil {
				t.Fatal(err)
			}
			b, err := Encode(a)
			if err == nil {
				err = NewWriter(&want).Write(Frame{Kind: KindAnswer, Call: 9, Payload: b})
			}
			if err != nil || !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Errorf("%d bytes, answer %d: other bytes than Encode gives, %v", size, a.ID, err)
			}
			var back Answer
			f, err := NewReader(&got, MaxPayload).Next()
			if err == nil {
				err = Decode(f.Payload, &back)
			}
			if err != nil || !reflect.DeepEqual(back, a) {
				t.Errorf("%d bytes, answer %d: it does not come back: %v", size, a.ID, err)
			}
		}
	}
}

func TestAnAnswerThatIsTooLargeIsNotSent(t *testing.T) {
	var sent bytes.Buffer
	if err := NewWriter(&sent).WriteAnswer(9, Answer{Payload: make([]byte, MaxAskBytes+1)}); err == nil || sent.Len() != 0 {
		t.Errorf("%v, and %d bytes are sent", err, sent.Len())
	}
}

// whole is a connection that only counts.
type whole struct{ n int }

func (w *whole) Write(p []byte) (int, error) { w.n += len(p); return len(p), nil }

func TestALargeAnswerIsNotCopied(t *testing.T) {
	a := Answer{Payload: make([]byte, MaxAskBytes)}
	sink := new(whole)
	w := NewWriter(sink)
	const times = 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range times {
		if err := w.WriteAnswer(1, a); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	per := (after.TotalAlloc - before.TotalAlloc) / times
	if per > copied || sink.n < times*MaxAskBytes {
		t.Errorf("an answer of %d bytes takes %d bytes more to send; %d were sent", len(a.Payload), per, sink.n)
	}
}
