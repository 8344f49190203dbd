package view

import (
	"strings"

	"github.com/charmbracelet/x/ansi"
)

// gap is what stands between two columns.
const gap = "  "

// Width is the number of terminal columns that a safe text takes.
func Width(text string) int {
	if isPlain(text) {
		return len(text)
	}
	return ansi.StringWidth(text)
}

// Cut shortens a safe text to at most width terminal columns; an ellipsis
// stands for what is missing.
func Cut(text string, width int) string {
	if width <= 0 {
		return ""
	}
	return ansi.Truncate(text, width, "…")
}

// Start is the beginning of a safe text, at most width terminal columns.
func Start(text string, width int) string { return ansi.Truncate(text, max(0, width), "") }

// Pad fills a safe text with spaces up to width terminal columns.
func Pad(text string, width int) string {
	return text + strings.Repeat(" ", max(0, width-Width(text)))
}

// maxPad is how wide a cell may make its column, in terminal columns. A wider
// one moves the rest of its own line alone: the padding of all others to its
// width would make a table of many times the size of what hosts said.
const maxPad = 256

// Table is a table for people: columns as wide as their widest cell, up to 256
// terminal columns, a line of dashes below the titles, and nothing at the end of
// a line that cannot be seen. Style, when not nil, may put colour around a cell, whose width it must
// not change.
func Table(titles []string, rows [][]string, headers bool, style func(column int, cell string) string) string {
	widths := make([]int, len(titles))
	if headers {
		for i, title := range titles {
			widths[i] = Width(title)
		}
	}
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], min(Width(cell), maxPad))
		}
	}
	var b strings.Builder
	line := func(cells []string, style func(int, string) string) {
		var pending int // spaces that are only written when something follows
		for i, cell := range cells {
			if cell != "" {
				b.WriteString(strings.Repeat(" ", pending))
				pending = 0
				shown := cell
				if style != nil {
					shown = style(i, cell)
				}
				b.WriteString(shown)
			}
			pending += max(0, widths[i]-Width(cell)) + len(gap)
		}
		b.WriteByte('\n')
	}
	if headers {
		line(titles, nil)
		rules := make([]string, len(titles))
		for i, width := range widths {
			rules[i] = strings.Repeat("-", width)
		}
		line(rules, nil)
	}
	for _, row := range rows {
		line(row, style)
	}
	return b.String()
}
