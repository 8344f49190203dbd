package console

import (
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
)

// BenchmarkScreenOfTenThousand is one look at 10,000 sandboxes and the screen
// after it: what the console does every two seconds.
func BenchmarkScreenOfTenThousand(b *testing.B) {
	m := newModel(b.Context(), five(), func() time.Time { return noon }, time.Hour)
	_, _ = m.Update(tea.WindowSizeMsg{Width: 140, Height: 36})
	manifests, _ := m.source.Announced()
	_, _ = m.Update(announcedMsg{manifests, nil})
	records := sandboxes("one", 10_000)
	for b.Loop() {
		_, _ = m.Update(answeredMsg{manifests[0], records, nil})
		_ = m.screen()
	}
}

// BenchmarkKey is one key press and the screen after it, with as many.
func BenchmarkKey(b *testing.B) {
	m := newModel(b.Context(), five(), func() time.Time { return noon }, time.Hour)
	_, _ = m.Update(tea.WindowSizeMsg{Width: 140, Height: 36})
	manifests, _ := m.source.Announced()
	_, _ = m.Update(announcedMsg{manifests, nil})
	_, _ = m.Update(answeredMsg{manifests[0], sandboxes("one", 10_000), nil})
	for b.Loop() {
		_, _ = m.Update(namedKeys["down"])
		_ = m.screen()
	}
}
