package console

import (
	"image/color"

	"charm.land/lipgloss/v2"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// theme is how things look. Colour only repeats what a word or sign says.
type theme struct {
	text, dim, bold, accent     lipgloss.Style
	good, warn, bad             lipgloss.Style
	selected, selectedBlur, key lipgloss.Style
	border, borderFocus         lipgloss.Style
	button, buttonFocus         lipgloss.Style
	danger                      lipgloss.Style
}

// newTheme chooses colours that can be read on the terminal's background.
func newTheme(dark bool) theme {
	pick := func(onLight, onDark string) color.Color {
		return lipgloss.LightDark(dark)(lipgloss.Color(onLight), lipgloss.Color(onDark))
	}
	style := lipgloss.NewStyle
	accent := pick("#0b6b8a", "#67d4f1")
	onPlate := pick("#1f2328", "#f0f6fc")
	bad := pick("#b3261e", "#ff7b72")
	return theme{
		text:   style(),
		dim:    style().Foreground(pick("#5c6370", "#8b949e")),
		bold:   style().Bold(true),
		accent: style().Foreground(accent).Bold(true),
		good:   style().Foreground(pick("#1a7f37", "#56d364")),
		warn:   style().Foreground(pick("#8a5a00", "#e3b341")),
		bad:    style().Foreground(bad).Bold(true),
		// With a foreground of their own these can be read even where the
		// terminal did not say which background it has.
		selected:     style().Background(pick("#cfe8f3", "#1f4d5f")).Foreground(onPlate).Bold(true),
		selectedBlur: style().Background(pick("#e6e8eb", "#30363d")).Foreground(onPlate),
		key:          style().Foreground(accent),
		border:       style().Foreground(pick("#b6bcc4", "#484f58")),
		borderFocus:  style().Foreground(accent),
		button:       style().Padding(0, 2).Background(pick("#e6e8eb", "#30363d")).Foreground(onPlate),
		buttonFocus:  style().Padding(0, 2).Background(accent).Foreground(pick("#ffffff", "#0d1117")).Bold(true),
		danger:       style().Padding(0, 2).Background(bad).Foreground(pick("#ffffff", "#0d1117")).Bold(true),
	}
}

// state gives the sign and the look of a state.
func (t theme) state(s control.State) (sign string, style lipgloss.Style) {
	switch s {
	case control.StateReady:
		return "○", t.good
	case control.StateRunning:
		return "●", t.good
	case control.StateStarting:
		return "◔", t.warn
	case control.StateResetting:
		return "◑", t.warn
	case control.StateDisposing:
		return "◌", t.warn
	case control.StateFailed:
		return "✗", t.bad
	}
	return "?", t.dim
}
