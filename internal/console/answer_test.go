package console

import (
	"slices"
	"testing"
)

// after says how many bytes were taken when the answer was found, 0 if it was
// not.
func after(text string) int {
	var f answerFinder
	for i := range len(text) {
		if f.add(text[i]) {
			return i + 1
		}
	}
	return 0
}

func TestTheAnswerIsFoundBehindOthersAndNothingBehindItIsTaken(t *testing.T) {
	for text, want := range map[string]int{
		"\x1b[?62;1;6;22c":                   13,
		"\x1b[?6cls\r":                       5,
		"\x1b[?2026;2$y\x1b[?62c":            17,
		"\x1b]11;rgb:cc/cc/cc\x1b\\\x1b[?1c": 24,
		"q\x1b[<64;10;10M\x1b[?1c":           18,
		"26;2$y\x1b[?1c":                     11, // the rest of one that was read
		"\x1b\x1b[?1c":                       6,
		"\x1b[?c":                            4,
		"\x1b[>1;10;0c":                      0, // another question's
		"\x1b[c":                             0,
		"abc":                                0,
		"\x1b[?1":                            0,
		"":                                   0,
	} {
		if got := after(text); got != want {
			t.Errorf("%q: found after %d bytes, want %d", text, got, want)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x1b[?2026;2$y"))
	f.Add([]byte("\x1b]11;rgb:0000"))
	f.Add(slices.Repeat([]byte("\x1b[?0;"), 40))
	f.Fuzz(func(t *testing.T, b []byte) {
		var find answerFinder
		for _, c := range b {
			if find.add(c) {
				return
			}
			if len(find.sequence) > maxSequence {
				t.Fatalf("%d bytes are kept", len(find.sequence))
			}
		}
		if after(string(b)+"\x1b[?62;22c") == 0 {
			t.Errorf("the answer is not found behind %q", b)
		}
	})
}
