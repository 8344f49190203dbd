package console

import (
	"image/color"

	tea "charm.land/bubbletea/v2"
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

// newTheme chooses colours that can be read on the terminal's background. A
// terminal of few colours has 16, which its user chose: of those the nearest to
// another can be dark blue on black.
func newTheme(dark, few bool) theme {
	pick := func(onLight, onDark, fewOnLight, fewOnDark string) color.Color {
		if few {
			onLight, onDark = fewOnLight, fewOnDark
		}
		return lipgloss.LightDark(dark)(lipgloss.Color(onLight), lipgloss.Color(onDark))
	}
	style := lipgloss.NewStyle
	accent := pick("#0b6b8a", "#67d4f1", "4", "12")
	onPlate := pick("#1f2328", "#f0f6fc", "0", "15")
	onAccent := pick("#ffffff", "#0d1117", "15", "0")
	blur := pick("#e6e8eb", "#30363d", "7", "8")
	bad := pick("#b3261e", "#ff7b72", "1", "9")
	dim := style().Foreground(pick("#5c6370", "#8b949e", "", ""))
	if few {
		dim = style().Faint(true) // no colour of 16 is grey on both backgrounds
	}
	return theme{
		text:   style(),
		dim:    dim,
		bold:   style().Bold(true),
		accent: style().Foreground(accent).Bold(true),
		good:   style().Foreground(pick("#1a7f37", "#56d364", "2", "10")),
		warn:   style().Foreground(pick("#8a5a00", "#e3b341", "3", "3")),
		bad:    style().Foreground(bad).Bold(true),
		// With a foreground of their own these can be read even where the
		// terminal did not say which background it has.
		selected:     style().Background(pick("#cfe8f3", "#1f4d5f", "6", "4")).Foreground(onPlate).Bold(true),
		selectedBlur: style().Background(blur).Foreground(onPlate),
		key:          style().Foreground(accent),
		border:       style().Foreground(pick("#b6bcc4", "#484f58", "8", "8")),
		borderFocus:  style().Foreground(accent),
		button:       style().Padding(0, 2).Background(blur).Foreground(onPlate),
		buttonFocus:  style().Padding(0, 2).Background(accent).Foreground(onAccent).Bold(true),
		danger:       style().Padding(0, 2).Background(bad).Foreground(onAccent).Bold(true),
	}
}

// hasFewColours says whether a terminal has 16 colours.
func hasFewColours(msg tea.ColorProfileMsg) bool {
	few, more := lipgloss.Color("0"), lipgloss.Color("1")
	return lipgloss.Complete(msg.Profile)(few, more, more) == few
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
