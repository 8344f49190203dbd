package console

import (
	"time"

	"github.com/maf-sandbox/maf-sandbox-go/control"
)

// maxHistory is how many looks at one place are remembered.
const maxHistory = 24

// look is what was seen of a place at one look.
type look struct {
	state    control.State
	instance string
	signal   control.Timestamp
}

// past is what was seen of one place, the newest last.
type past struct {
	looks []look
	turn  int // the turn of the last look
}

// histories are the pasts of a host's places.
type histories struct {
	places map[spot]*past
	turn   int
	last   []*row // of the look before
}

// add notes what a host said, and forgets the places that it does not have any
// more.
func (h *histories) add(rows []*row) {
	if h.places == nil {
		h.places = make(map[spot]*past, len(rows))
	}
	h.turn++
	seen := 0
	for i, r := range rows {
		var p *past
		// Most rows are where they were, which is quicker to find out than to
		// look ten thousand up.
		if i < len(h.last) && h.last[i].spot() == r.spot() {
			p = h.last[i].past
		} else if p = h.places[r.spot()]; p == nil {
			p = new(past)
			h.places[r.spot()] = p
		}
		r.past = p
		if p.turn == h.turn {
			continue // of several at one place the first counts
		}
		p.turn = h.turn
		seen++
		if len(p.looks) == maxHistory {
			copy(p.looks, p.looks[1:])
			p.looks = p.looks[:maxHistory-1]
		}
		p.looks = append(p.looks, look{r.record.State, r.record.InstanceID, r.record.LastActivityAt})
	}
	h.last = rows
	if seen == len(h.places) {
		return
	}
	for at, p := range h.places {
		if p.turn != h.turn {
			delete(h.places, at)
		}
	}
}

// signs counts the signs of a sparkline that has room.
func (p *past) signs() int {
	n := len(p.looks)
	for i := 1; i < len(p.looks); i++ {
		if p.looks[i-1].instance != p.looks[i].instance {
			n++
		}
	}
	return n
}

// bars are the signs of states in a history, by how much is going on.
var bars = map[control.State]string{
	control.StateStarting: "▂", control.StateReady: "▃", control.StateResetting: "▄",
	control.StateRunning: "▇", control.StateDisposing: "▁", control.StateFailed: "✗",
}

// sparkline is a history in one line of at most width signs, the newest at the
// right: a bar for every look, and a line where a new generation began.
func sparkline(looks []look, width int) string {
	var signs []string
	for i, l := range looks {
		if i > 0 && looks[i-1].instance != l.instance {
			signs = append(signs, "│")
		}
		sign, known := bars[l.state]
		if !known {
			sign = "?"
		}
		signs = append(signs, sign)
	}
	var line string
	for _, sign := range signs[max(0, len(signs)-max(0, width)):] {
		line += sign
	}
	return line
}

// signals counts the lifecycle signals that were seen to come.
func signals(looks []look) int {
	n := 0
	for i := 1; i < len(looks); i++ {
		if looks[i].signal != looks[i-1].signal {
			n++
		}
	}
	return n
}

// entry is a line of the activity log: what this operator did, or what came of
// it.
type entry struct {
	at   time.Time
	text string
	tone tone

	// parts are the text's lines for a pane of this width, nil before they are
	// asked for.
	parts []string
	width int
}

// tone is how a message is meant.
type tone int

const (
	toneInfo tone = iota
	toneGood
	toneWarn
	toneBad
)

// maxLog is how many lines the activity log keeps.
const maxLog = 200
