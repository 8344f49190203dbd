package console

import (
	"cmp"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// Sizes of the screen, in terminal columns and lines.
const (
	// minWidth and minHeight are the smallest usable screen.
	minWidth, minHeight = 40, 10
	// twoPanes is the width from which table and details stand side by side;
	// the Python program's console changes there too.
	twoPanes = 103
	// tableShare and detailShare are the least widths of the two then.
	tableShare, detailShare = 64, 34
	// stackHeight is the body height from which the details stand below the
	// table; below that they take its place.
	stackHeight = 16
	// chrome is what stands around the body: header, status and footer.
	chrome = 3
	// logHeight is what the log has, from a body of logBody lines on; below that
	// it takes the place of all others when it has the focus.
	logHeight, logBody = 6, 22
	// frame is what a pane's border takes of its height and width; tableFrame
	// is that and the line of titles.
	frame, tableFrame = 2, 3
)

// rect is a part of the screen.
type rect struct{ x, y, w, h int }

func (r rect) has(x, y int) bool { return x >= r.x && x < r.x+r.w && y >= r.y && y < r.y+r.h }

// layout says where everything is. What is not shown has no height.
type layout struct {
	tooSmall           bool
	table, detail, log rect
	status, footer     int // their lines
}

// arrangeScreen is the layout for a size. The header is always the first line.
func arrangeScreen(width, height int, focus pane, wide, showLog bool) layout {
	if width < minWidth || height < minHeight {
		return layout{tooSmall: true}
	}
	l := layout{status: height - 2, footer: height - 1}
	body := rect{0, 1, width, height - chrome}
	if focus == paneLog && body.h < logBody {
		l.log = body
		return l
	}
	if showLog && body.h >= logBody {
		l.log = rect{0, body.y + body.h - logHeight, width, logHeight}
		body.h -= logHeight
	}
	switch {
	case wide || (width < twoPanes && body.h < stackHeight):
		if focus == paneDetail {
			l.detail = body
		} else {
			l.table = body
		}
	case width >= twoPanes:
		left := min(max(tableShare, width*2/3), width-detailShare)
		l.table = rect{0, body.y, left, body.h}
		l.detail = rect{left, body.y, width - left, body.h}
	default:
		upper := (body.h + 1) / 2
		l.table = rect{0, body.y, width, upper}
		l.detail = rect{0, body.y + upper, width, body.h - upper}
	}
	return l
}

func (m *model) layout() layout {
	return arrangeScreen(m.width, m.height, m.focus, m.wide, m.showLog)
}

// logFits says whether there is room for the log beside the others.
func (m *model) logFits() bool { return m.height-chrome >= logBody }

func compareManifests(a, b control.Manifest) int {
	return cmp.Or(cmp.Compare(a.SourceID, b.SourceID), cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.ProcessID, b.ProcessID))
}
