package console

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/maf-sandbox/maf-sandbox-go/internal/mst/view"
)

// wrappedInFull is what an entry looks like whose whole text is wrapped.
func wrappedInFull(text string, room int) []string {
	if view.Width(text) <= room {
		return []string{text}
	}
	parts := wrap(text, room)
	if len(parts) > maxEntry {
		parts = append(parts[:maxEntry-1], view.Start(parts[maxEntry-1], room-1)+"…")
	}
	return parts
}

func TestAnEntryLooksAsIfItsWholeTextWereWrapped(t *testing.T) {
	for _, text := range []string{
		"", "short", "a sentence of several words that does not fit", strings.Repeat("x", 4096), strings.Repeat("word ", 800),
		strings.Repeat("界", 1300), strings.Repeat(`\u200b界 `, 300), strings.Repeat("a-b ", 1000), "x " + strings.Repeat("界x", 500),
		strings.Repeat("नमस्ते ", 200), strings.Repeat("é", 1500), strings.Repeat("😀", 1000),
	} {
		for _, room := range []int{1, 2, 7, 20, 65, 200} {
			if got, want := wrapEntry(text, room), wrappedInFull(text, room); !slices.Equal(got, want) {
				t.Errorf("%.20q at %d: %q, want %q", text, room, got, want)
			}
		}
	}
}

func FuzzAnEntryFitsAndSaysThatThereIsMore(f *testing.F) {
	f.Add(strings.Repeat("e\u0301", 90), 9)
	f.Add("a"+strings.Repeat("\u0301", 300), 9)
	f.Add(strings.Repeat("word ", 20), 1)
	f.Add("000-", 1)
	f.Fuzz(func(t *testing.T, text string, room int) {
		room = 2 + (room&0xff+0x100)&0xff
		text = view.Sentence(text)
		parts := wrapEntry(text, room)
		if len(parts) < 1 || len(parts) > maxEntry {
			t.Fatalf("%d lines", len(parts))
		}
		kept := strings.ReplaceAll(strings.Join(parts, ""), " ", "")
		for _, part := range parts {
			if !utf8.ValidString(part) || ansi.StringWidth(part) > room {
				t.Errorf("%q does not fit into %d", part, room)
			}
		}
		if kept != strings.ReplaceAll(text, " ", "") && !strings.HasSuffix(kept, "…") {
			t.Errorf("%q became %q", text, parts)
		}
	})
}

// A host's message may be of 4 KiB, and all lines of the log are shown again at
// every key.
func TestALongLogIsWrappedOnceForAWidth(t *testing.T) {
	m := &model{theme: newTheme(true, false)}
	for range maxLog {
		m.log = append(m.log, entry{at: time.Unix(0, 0), text: strings.Repeat("界 ", 1000), tone: toneWarn})
	}
	m.logScroll = 1
	first := m.logLines(76, 6)
	if again := m.logLines(76, 6); !slices.Equal(first, again) || len(again) != 6 {
		t.Errorf("%q, then %q", first, again)
	}
	// Reading the oldest: every entry has been wrapped, and is not again.
	m.logScroll = 1 << 20
	if n := testing.AllocsPerRun(10, func() { m.logHeight(76) }); n != 0 {
		t.Errorf("%v allocations to count lines that are known", n)
	}
	if got := m.logLines(76, 6); !strings.Contains(got[0], clock(time.Unix(0, 0))) {
		t.Errorf("the oldest lines are %q", got)
	}
	if narrow := m.logLines(40, 6); ansi.StringWidth(narrow[0]) > 40 || slices.Equal(narrow, first) {
		t.Errorf("at another width: %q", narrow)
	}
}

// BenchmarkScrolledLog is the log's pane at its oldest lines, of messages as
// long as hosts may make them; at another width every time, and at the same.
func BenchmarkScrolledLog(b *testing.B) {
	for name, widths := range map[string]int{"same": 1, "resized": 2} {
		b.Run(name, func(b *testing.B) {
			m := &model{theme: newTheme(true, false), logScroll: 1 << 20}
			for range maxLog {
				m.log = append(m.log, entry{at: time.Unix(0, 0), text: strings.Repeat(`\u200b界 `, 4096/11), tone: toneWarn})
			}
			i := 0
			for b.Loop() {
				i++
				m.logLines(76+i%widths, 6)
			}
		})
	}
}
