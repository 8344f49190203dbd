package console

import (
	"slices"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/maf-sandbox/maf-sandbox-go/internal/bench"
)

// crowded is a console that has seen 10,000 sandboxes, and several answers that
// show as many: rows are made where an answer is waited for, which is not a part
// of a frame.
func crowded(b *testing.B) (m *model, answers []answeredMsg) {
	b.Helper()
	m = newModel(b.Context(), five(), func() time.Time { return noon }, time.Hour)
	_, _ = m.Update(tea.WindowSizeMsg{Width: 140, Height: 36})
	manifests, _ := m.source.Announced()
	_, _ = m.Update(announcedMsg{manifests, nil})
	for range 4 {
		answers = append(answers, answeredMsg{manifests[0], hostRows(manifests[0], sandboxes("one", 10_000)), nil})
	}
	_, _ = m.Update(answers[0])
	return m, answers
}

// frames times what happens between two screens, and the second one.
func frames(b *testing.B, m *model, happens func()) {
	var took []float64
	for b.Loop() {
		start := time.Now()
		happens()
		_ = m.screen()
		took = append(took, float64(time.Since(start))/float64(time.Millisecond))
	}
	slices.Sort(took)
	for _, p := range []struct {
		name string
		at   float64
	}{{"p50-ms", 50}, {"p95-ms", 95}, {"p99-ms", 99}, {"max-ms", 100}} {
		b.ReportMetric(bench.Percentile(took, p.at), p.name)
	}
}

// BenchmarkFrameAfterALook is one look at 10,000 sandboxes and the screen after
// it: what the console does every two seconds.
func BenchmarkFrameAfterALook(b *testing.B) {
	m, answers := crowded(b)
	i := 0
	frames(b, m, func() {
		i++
		_, _ = m.Update(answers[i%len(answers)])
	})
}

// BenchmarkFrameAfterAKey is one key press and the screen after it, with as many.
func BenchmarkFrameAfterAKey(b *testing.B) {
	m, _ := crowded(b)
	frames(b, m, func() { _, _ = m.Update(namedKeys["down"]) })
}

// BenchmarkFrameAfterASort is another order of as many.
func BenchmarkFrameAfterASort(b *testing.B) {
	m, _ := crowded(b)
	frames(b, m, func() { m.sortNext() })
}

// BenchmarkFrameAfterALetter is another letter of the filter, with as many.
func BenchmarkFrameAfterALetter(b *testing.B) {
	m, _ := crowded(b)
	keys, i := []string{"/", "t", "-", "9", "esc"}, 0
	frames(b, m, func() {
		_, _ = m.Update(keyNamed(b, keys[i%len(keys)]))
		i++
	})
}
